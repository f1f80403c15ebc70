#include "magister/text/folded.h"

#include <utf8proc.h>

#include <cstdlib>
#include <iterator>
#include <memory>

#include "magister/core/error.h"
#include "text/unicode.h"

namespace magister {
namespace {

constexpr int kFoldedForm = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE;

bool is_ideographic(char32_t c) {
  constexpr char32_t kRanges[][2] = {{0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x3040, 0x30FF},
                                     {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
  for (const auto& [first, last] : kRanges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

bool is_of_word(char32_t c) { return (char_class(c) & (kLetter | kNumber | kMark)) != 0; }

bool joins_word(char32_t c) { return c == '\'' || c == '.' || c == 0x2019; }

}  // namespace

std::string folded(std::string_view text) {
  if (text.empty()) return {};
  utf8proc_uint8_t* mapped = nullptr;
  // Combined options are not a value of the enum. NOLINTBEGIN(clang-analyzer-optin.core.EnumCastOutOfRange)
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(kFoldedForm));
  // NOLINTEND(clang-analyzer-optin.core.EnumCastOutOfRange)
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(mapped, std::free);
  MAGISTER_CHECK(size >= 0, ExitCode::kData, "a text cannot be folded: {} (it cannot be compared); fix the text",
                 utf8proc_errmsg(size));
  const std::string_view all(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
  std::string result;
  bool space = false;
  for (std::size_t at = 0; at < all.size();) {
    const CodePoint point = code_point_at(all, at);
    if (is_space(point.value)) {
      space = !result.empty();
    } else {
      if (space) result += ' ';
      space = false;
      result += all.substr(at, point.bytes);
    }
    at += point.bytes;
  }
  return result;
}

std::vector<std::string> folded_words(std::string_view text) {
  const std::string all = folded(text);
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (std::size_t at = 0; at < all.size();) {
    const CodePoint point = code_point_at(all, at);
    const std::size_t next = at + point.bytes;
    const std::string_view bytes = std::string_view(all).substr(at, point.bytes);
    if (is_ideographic(point.value) && is_of_word(point.value)) {
      end_word();
      words.emplace_back(bytes);
    } else if (is_of_word(point.value)) {
      word += bytes;
    } else if (joins_word(point.value) && !word.empty() && next < all.size() &&
               is_of_word(code_point_at(all, next).value)) {
      word += bytes;
    } else {
      end_word();
    }
    at = next;
  }
  end_word();
  return words;
}

std::size_t num_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace magister
