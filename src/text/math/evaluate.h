// Values of trees: exact if all parts are whole numbers and fractions, else with 220 bits at a point that gives every
// variable a number. A value that is too large or takes too many steps is nothing; the bounds are the same everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "text/math/tree.h"

namespace magister::math {

// Steps that are left, and the reason why something had no value.
struct Budget {
  std::int64_t steps = 20000;
  std::string why;

  // Returns false if fewer steps were left.
  bool spend(std::int64_t some = 1) {
    steps -= some;
    if (steps < 0 && why.empty()) why = "too many steps";
    return steps >= 0;
  }
};

std::optional<Rational> exact_value(const Tree& tree, Budget& budget);

using Point = std::map<std::string, Complex>;
std::optional<Complex> value_at(const Tree& tree, const Point& point, Budget& budget);

// 1: infinity, -1: minus infinity, 0: neither. Judged by notation only.
int infinite_sign(const Tree& tree);

}  // namespace magister::math
