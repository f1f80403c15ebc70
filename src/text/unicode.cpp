// Expands the generated ranges once, to two bytes per code point.
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
struct LowerCase {
  std::uint32_t from, to;
};

#include "text/unicode_tables.inc"

std::vector<std::uint16_t> build_classes() {
  std::vector<std::uint16_t> classes(0x110000, 0);
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
  mark(kMarkRanges, kMark);
  mark(kNonspacingMarkRanges, kNonspacingMark);
  mark(kBertControlRanges, kBertControl);
  mark(kPunctuationRanges, kPunctuation);
  mark(kUnknownToNfkdRanges, kUnknownToNfkd);
  return classes;
}

}  // namespace

std::uint16_t char_class(char32_t code_point) {
  static const std::vector<std::uint16_t> kClasses = build_classes();
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

int options_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case UnicodeForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case UnicodeForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    case UnicodeForm::kNfc:
      break;
  }
  return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
}

std::string normalise_known(std::string_view text, UnicodeForm form) {
  if (text.empty()) return {};
  utf8proc_uint8_t* normal = nullptr;
  // Combined options are not a value of the enum. NOLINTBEGIN(clang-analyzer-optin.core.EnumCastOutOfRange)
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &normal, static_cast<utf8proc_option_t>(options_of(form)));
  // NOLINTEND(clang-analyzer-optin.core.EnumCastOutOfRange)
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(normal, std::free);
  MAGISTER_CHECK(size >= 0, ExitCode::kData, "a text cannot be normalised: {} (it cannot be tokenised); fix the text",
                 utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(normal), static_cast<std::size_t>(size)};
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

}  // namespace

std::string normal_form(std::string_view text, UnicodeForm form) {
  if (is_ascii(text)) return std::string(text);  // ASCII is in every normal form
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const int unknown = compatible ? kUnknownToNfc | kUnknownToNfkd : kUnknownToNfc;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if ((char_class(point.value) & unknown) != 0) {
      out += normalise_known(text.substr(begin, at - begin), form);
      out += text.substr(at, point.bytes);
      begin = at + point.bytes;
    }
    at += point.bytes;
  }
  return out + normalise_known(text.substr(begin), form);
}

std::string lowercase(std::string_view text) {
  static const auto kMap = [] {
    std::vector<char32_t> map(0x110000);
    for (std::uint32_t c = 0; c < map.size(); ++c)
      map[c] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    for (const LowerCase& pair : kLowerCases) map[pair.from] = pair.to;
    return map;
  }();
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_utf8(out, kMap[point.value]);
    if (point.value == 0x130) append_utf8(out, 0x307);  // the only code point that becomes two: i and a dot above
    at += point.bytes;
  }
  return out;
}

}  // namespace magister
