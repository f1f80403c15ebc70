// Sets of real numbers as intervals between numbers: what intervals, unions, differences, braces of numbers and solved inequalities are.
#pragma once

#include <optional>
#include <vector>

#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

struct End {
  Complex at;
  int infinite = 0;  // -1, 1: at is not read
  bool closed = false;
};
struct Interval {
  End from, to;
};
// Disjoint, in order, joined where they touch.
using Region = std::vector<Interval>;

// Nothing: it is no set of real numbers that is known.
std::optional<Region> region_of(const Tree& tree, Budget& budget);
// Of x < 5 or 1 <= x < 2, of one variable alone that stands by itself.
std::optional<Region> solutions_of(const Tree& relation, Budget& budget);
bool same_region(const Region& a, const Region& b, bool with_decimals);

}  // namespace magister::math
