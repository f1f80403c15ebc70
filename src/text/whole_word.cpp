// Categories come from utf8proc. Variation selectors and the keycap (U+20E3) are marks in Unicode, but they change only
// how a character looks: "1" + U+FE0F + U+20E3 is a 1.
#include "magister/text/whole_word.h"

#include <utf8proc.h>

#include "magister/core/utf8.h"
#include "text/unicode.h"

namespace magister {
namespace {

enum class Sign { kNone, kMark, kWord };

Sign sign_of(char32_t c) {
  const bool only_looks = (c >= 0xFE00 && c <= 0xFE0F) || (c >= 0xE0100 && c <= 0xE01EF) || c == 0x20E3;
  if (only_looks) return Sign::kNone;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_PC:
      return Sign::kWord;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return Sign::kMark;
    default:
      return Sign::kNone;
  }
}

// Returns the start of the code point that ends before `end`, or `end` if a stray byte is there.
std::size_t begin_of_last(std::string_view text, std::size_t end) {
  for (std::size_t bytes = 1; bytes <= 4 && bytes <= end; ++bytes) {
    if (utf8_sequence_length(text.substr(end - bytes)) == bytes) return end - bytes;
  }
  return end;
}

// A mark counts as the character that it belongs to.
bool word_ends_at(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t begin = begin_of_last(text, end);
    if (begin == end) return false;
    const Sign sign = sign_of(code_point_at(text, begin).value);
    if (sign != Sign::kMark) return sign == Sign::kWord;
    end = begin;
  }
  return false;
}

bool word_begins_at(std::string_view text, std::size_t at) {
  return utf8_sequence_length(text.substr(at)) > 0 && sign_of(code_point_at(text, at).value) != Sign::kNone;
}

}  // namespace

bool is_whole_word(std::string_view text, std::size_t at, std::size_t size) {
  return !word_ends_at(text, at) && !word_begins_at(text, at + size);
}

}  // namespace magister
