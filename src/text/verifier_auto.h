// Rewrites answers so that the rule `auto` of the verifier `math` can compare them however they are written; see
// verifier.h.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// Returns the text with '-' for every minus and hyphen of Unicode (a minus sign, an en dash), and '$' for the symbols
// of euro, pound and yen.
std::string plain_signs(std::string_view text);

// Returns the text with ',' for other separators of thousands: "9{,}500", "9\,500", "9,\!500" as LaTeX writes them, and
// the narrow and no-break spaces of Unicode, between one to three digits before and three after. "0{,}125" is a decimal
// comma and stays.
std::string plain_separators(std::string_view text);

// Returns the text with a space for LaTeX's spaces, and for the commands around an upright word: "5\,\mathrm{cm}"
// becomes "5  cm". "\text{ cm}" stays: by MATH's rule it and everything after it is a unit.
std::string plain_spaces(std::string_view text);

// Reports whether the '-' at this place joins two words or numbers ("3-5", "10%-20%", "model-4") and is not a sign.
bool joins(std::string_view text, std::size_t at);

// Returns "50%", "7 apples", "5 cm" and "3/4 cups." without the text after the number. If that text may be part of an
// expression ("2 pi", "3x", "7 or 8", "5 million"), nothing changes.
std::string_view without_unit(std::string_view text);

}  // namespace magister
