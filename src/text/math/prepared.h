// What trees are to a comparison: values, collections, equations; and a tree as it is compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

// A number, or what becomes one where its variables are numbers.
bool is_value(const Tree& tree);
// Members side by side or in braces.
bool is_collection(const Tree& tree);
// Members of a relation with = (or in) alone.
bool is_equation(const Tree& tree);
// "x" and "1/2" of a chain "x = 2/4 = 1/2".
const TreePtr& first_of(const Tree& chain);
const TreePtr& last_of(const Tree& chain);
// Whether what stands left of = is a name of something, not an equation that has still to be solved.
bool names_something(const Tree& tree);

// With both signs of +- as two members, and "x = 1, 2" as x = {1, 2}.
TreePtr prepared(TreePtr tree);

// A number for each name, the same everywhere: between 1/5 and 3.2, of either sign, with a denominator that no answer has.
Point drawn_point(const std::vector<std::string>& names, std::uint64_t seed, int number);

}  // namespace magister::math
