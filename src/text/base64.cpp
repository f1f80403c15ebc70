#include "text/base64.h"

#include <array>
#include <cstdint>

namespace magister {

std::optional<std::string> decode_base64(std::string_view text) {
  static const auto kValues = [] {
    std::array<std::int8_t, 256> values{};
    values.fill(-1);
    std::int8_t next = 0;
    for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")) {
      values[static_cast<unsigned char>(c)] = next++;
    }
    return values;
  }();
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t group = 0;
    for (std::size_t i = at; i < at + 4; ++i) {
      const bool filler = i >= text.size() - padding;
      const std::int8_t value = filler ? std::int8_t{0} : kValues[static_cast<unsigned char>(text[i])];
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(group >> shift & 0xFF);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace magister
