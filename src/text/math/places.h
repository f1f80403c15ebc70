// Finds formulas in a text: boxes, and environments of LaTeX.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "text/math/plain_numbers.h"

namespace magister::math {

constexpr auto kNone = std::string_view::npos;

std::string_view trimmed(std::string_view text);

// In order. Formulas that follow each other closely are one list: "\boxed{1} and \boxed{2}", "$x=1$ or $x=2$".
std::vector<Found> boxes(std::string_view text);
std::vector<Found> formulas(std::string_view text);

}  // namespace magister::math
