// Functions of complex numbers of 220 bits, and constants. A value that is too large or does not exist is nothing, and
// the budget says why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/math/evaluate.h"

namespace magister::math {

using Value = std::optional<Complex>;
constexpr long kMaxFactorial = 2000;

// Returns the value itself, unless it is not finite or beyond 2^100000.
Value checked(Complex value, Budget& budget);
Value divided(const Complex& over, const Complex& under, Budget& budget);
Value power(const Complex& base, const Complex& exponent, Budget& budget);
Value call(const std::string& name, const std::vector<Complex>& of, Budget& budget);
Value constant(const std::string& name, Budget& budget);

}  // namespace magister::math
