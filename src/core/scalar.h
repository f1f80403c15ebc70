// Strict scalars: one way to write each value, everything else refused with a hint at what was probably meant.
// And the way back: text as a YAML scalar that every YAML 1.1 and 1.2 reader takes for the same text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace magister {

// Either the value or why it is none: "010 has a leading zero (some YAML readers take it for octal); write 10".
template <typename T>
using ScalarResult = std::variant<T, std::string>;

ScalarResult<std::int64_t> read_integer(std::string_view scalar, bool quoted);
ScalarResult<double> read_number(std::string_view scalar, bool quoted);
ScalarResult<bool> read_boolean(std::string_view scalar, bool quoted);

// A plain text that some reader of YAML takes for something else (yes, 010, 0x1F, .inf): why, and what to write; else "".
std::string text_surprise(std::string_view scalar, bool quoted);

std::string yaml_text(std::string_view text);  // plain where no reader can misread it, else in double quotes
std::string yaml_number(double value);         // shortest that reads back the same, with a point

}  // namespace magister
