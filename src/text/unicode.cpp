// The generated ranges as one byte a code point, built once.
#include "text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "magister/core/error.h"

namespace magister {
namespace {

struct CodePointRange {
  std::uint32_t first, last;
};

#include "text/unicode_tables.inc"

std::vector<std::uint8_t> build_classes() {
  std::vector<std::uint8_t> classes(0x110000, 0);
  const auto mark = [&](const auto& ranges, CharClass bit) {
    for (const CodePointRange& range : ranges) {
      for (std::uint32_t c = range.first; c <= range.last; ++c) classes[c] |= bit;
    }
  };
  mark(kLetterRanges, kLetter);
  mark(kNumberRanges, kNumber);
  mark(kDigitRanges, kDigit);
  mark(kSpaceRanges, kSpace);
  mark(kWordRanges, kWord);
  mark(kUnknownToNfcRanges, kUnknownToNfc);
  return classes;
}

}  // namespace

std::uint8_t char_class(char32_t code_point) {
  static const std::vector<std::uint8_t> kClasses = build_classes();
  return code_point < kClasses.size() ? kClasses[code_point] : 0;
}

void append_utf8(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
}

namespace {

std::string compose(std::string_view text) {
  if (text.empty()) return {};
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(composed, std::free);
  MAGISTER_CHECK(size >= 0, ExitCode::kData, "a text cannot be normalised: {} (it cannot be tokenised); fix the text",
                 utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size)};
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if ((char_class(point.value) & kUnknownToNfc) != 0) {
      out += compose(text.substr(begin, at - begin));
      out += text.substr(at, point.bytes);
      begin = at + point.bytes;
    }
    at += point.bytes;
  }
  return out + compose(text.substr(begin));
}

}  // namespace magister
