// Sets of real numbers as intervals: what intervals, unions, differences, braces with numbers and solved inequalities
// mean.
#pragma once

#include <optional>
#include <vector>

#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

struct End {
  Complex at;
  int infinite = 0;  // -1, 1: infinite, `at` is not used
  bool closed = false;
};
struct Interval {
  End from, to;
};
// Disjoint, in order, merged where they touch.
using Region = std::vector<Interval>;

// Nothing: not a known set of real numbers.
std::optional<Region> region_of(const Tree& tree, Budget& budget);
// Solves x < 5 or 1 <= x < 2: one variable that is alone on its side.
std::optional<Region> solutions_of(const Tree& relation, Budget& budget);
bool same_region(const Region& a, const Region& b, bool with_decimals);

}  // namespace magister::math
