// What the rule `auto` of the verifier `math` takes for the same however it is written; see verifier.h.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// With '-' for every minus and hyphen of Unicode (a minus sign, an en dash), and '$' for the signs of euros, pounds and yen.
std::string plain_signs(std::string_view text);

// With ',' for what else parts thousands: "9{,}500", "9\,500", "9,\!500" as LaTeX has them, and the narrow and no-break spaces of
// Unicode, where one to three digits stand before and three behind. "0{,}125" is a decimal comma and stays.
std::string plain_separators(std::string_view text);

// With a blank for LaTeX's spaces, and for the marks around a word in upright letters: "5\,\mathrm{cm}" is "5  cm". "\text{ cm}" stays:
// MATH's rule takes it and all behind it for a unit.
std::string plain_spaces(std::string_view text);

// Whether the '-' at this place joins two words or numbers ("3-5", "10%-20%", "model-4"), and is no sign of what follows.
bool joins(std::string_view text, std::size_t at);

// "50%", "7 apples", "5 cm" and "3/4 cups." without what stands behind the number. Where that may be a part of an expression ("2 pi", "3x",
// "7 or 8", "5 million") the text stays as it is.
std::string_view without_unit(std::string_view text);

}  // namespace magister
