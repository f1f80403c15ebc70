// Joins pairs of surrogate escapes; see yaml_source.h. Source: RFC 8259, section 7.
#include "core/yaml_source.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>

namespace magister {

namespace {

std::optional<std::uint32_t> surrogate(std::string_view text, std::size_t at) {
  std::uint32_t value = 0;
  if (text.substr(at, 2) != "\\u" || at + 6 > text.size()) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at + 2, text.data() + at + 6, value, 16);
  if (error != std::errc() || end != text.data() + at + 6 || value < 0xD800 || value > 0xDFFF) return std::nullopt;
  return value;
}

}  // namespace

bool join_surrogates(std::string& text, std::size_t stop, std::vector<std::size_t>& shortened) {
  if (stop == 0) return false;
  std::size_t at = text.rfind("\\u", std::min(stop, text.size()) - 1);  // the last escape that begins before `stop`
  if (at == std::string::npos || stop - at > 8) return false;
  bool joined = false;
  for (; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] != '\\') continue;
    const auto high = surrogate(text, at), low = high ? surrogate(text, at + 6) : std::nullopt;
    if (high && low && *high < 0xDC00 && *low >= 0xDC00) {
      text.replace(at, 12, fmt::format("\\U{:08X}", 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00)));
      shortened.push_back(at + 10);
      at += 9;
      joined = true;
    } else {
      ++at;  // the escaped character
    }
  }
  return joined;
}

}  // namespace magister
