// Checks UTF-8 by RFC 3629, one code point at a time. Used wherever foreign text enters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace magister {

// Number of bytes (1..4) of the well-formed code point at the start of text. 0: there is none (overlong form,
// surrogate, truncated, stray continuation byte, above U+10FFFF, empty text).
std::size_t utf8_sequence_length(std::string_view text) noexcept;

// Position of the first byte that is not well-formed UTF-8, or text.size().
std::size_t find_invalid_utf8(std::string_view text) noexcept;

// Replaces every U+0000 by U+FFFD, because strings in results files end at the first U+0000.
std::string without_nul(std::string text);

}  // namespace magister
