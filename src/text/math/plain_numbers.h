// Numbers and arithmetic outside formulas: "it costs $1,234.50", "3/4", "2 + 3", "\frac{1}{2}", "28 percent".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace magister::math {

// A place in a text, and the formula that it contains.
struct Found {
  std::size_t begin = 0, end = 0;
  std::string formula;
};

std::vector<Found> plain_numbers(std::string_view text);

// Length of a "%", " percent" or the like that the text begins with; 0: none.
std::size_t percent_sign(std::string_view text);

}  // namespace magister::math
