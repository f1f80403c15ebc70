// Numbers between bounds as a grammar: what JSON lets a number look like, with any number of digits.
#pragma once

#include <optional>
#include <string>

namespace magister {

// EBNF whose root is every number x with least <= x <= most (without the bound where it is excluded), as a double reads it; an open side has no
// bound. Written plainly with any number of decimals, or with one digit but 0 before the point and an exponent (1.5e-07, as Python and JavaScript
// write numbers): where the digits before a point may be any, what an exponent makes of them is no regular language. Where a bound has more
// than kPlainDigits digits before its point or behind it, only the second form reaches it. Throws std::runtime_error where no number is in the
// range. Local, pure.
std::string number_range_grammar(std::optional<double> least, std::optional<double> most, bool excludes_least,
                                 bool excludes_most);

constexpr int kPlainDigits = 24;

}  // namespace magister
