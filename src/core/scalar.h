// Strict scalars: each value has one spelling, and every other spelling is refused with a hint at the probable meaning.
// Also writes texts and numbers as YAML scalars that every YAML 1.1 and 1.2 reader reads as the same value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace magister {

// The value, or the reason why there is none: "010 has a leading zero (some readers take it for octal); write 10".
template <typename T>
using ScalarResult = std::variant<T, std::string>;

ScalarResult<std::int64_t> read_integer(std::string_view scalar, bool quoted);
ScalarResult<double> read_number(std::string_view scalar, bool quoted);
ScalarResult<bool> read_boolean(std::string_view scalar, bool quoted);

// For a plain text that some readers of YAML take for something else (yes, 010, 0x1F, .inf): the reason and what to
// write instead. Otherwise "".
std::string text_surprise(std::string_view scalar, bool quoted);

std::string yaml_text(std::string_view text);  // plain if no reader can misread it, otherwise in double quotes
std::string yaml_number(double value);         // shortest form that reads back as the same number, with a point

}  // namespace magister
