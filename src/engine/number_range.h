// Numbers between bounds as a grammar: all forms of JSON numbers, with any number of digits.
#pragma once

#include <optional>
#include <string>

namespace magister {

// EBNF whose root matches every number x with least <= x <= most (without the bound if it is excluded), as read into a
// double; an absent side has no bound. A number is written plainly with any number of decimals, or with one digit other
// than 0 before the point and an exponent (1.5e-07, as Python and JavaScript write numbers); with any digits before the
// point, numbers with an exponent in a range would not be a regular language. If a bound has more than kPlainDigits
// digits before or after its point, only the second form reaches it. Throws std::runtime_error if no number is in the
// range. Local, pure.
std::string number_range_grammar(std::optional<double> least, std::optional<double> most, bool excludes_least,
                                 bool excludes_most);

constexpr int kPlainDigits = 24;

}  // namespace magister
