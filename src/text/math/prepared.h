// Classifies trees for a comparison (values, collections, equations) and brings them into the form that is compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

// A number, or an expression that becomes one once its variables have values.
bool is_value(const Tree& tree);
// Members separated by commas, or in braces.
bool is_collection(const Tree& tree);
// Relations that only have the sign = (or in).
bool is_equation(const Tree& tree);
// The first and the last part of a chain: "x" and "1/2" of "x = 2/4 = 1/2".
const TreePtr& first_of(const Tree& chain);
const TreePtr& last_of(const Tree& chain);
// Reports whether the left side of = only names something, so the equation need not be solved.
bool names_something(const Tree& tree);

// Both signs of +- become two members, and "x = 1, 2" becomes x = {1, 2}.
TreePtr prepared(TreePtr tree);

// Draws a number for each name, the same everywhere: between 0.2 and 3.21, of either sign, with a denominator (997)
// that no answer has.
Point drawn_point(const std::vector<std::string>& names, std::uint64_t seed, int number);

}  // namespace magister::math
