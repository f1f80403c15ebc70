#include "text/charsmap.h"

#include <cstring>

#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

// Reports whether a character begins here, or the text ends.
bool is_border(std::string_view text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& source) {
  if (blob.empty()) return;
  std::uint32_t array_bytes = 0;
  const bool has_size = blob.size() >= sizeof array_bytes;
  if (has_size) std::memcpy(&array_bytes, blob.data(), sizeof array_bytes);
  MAGISTER_CHECK(has_size && array_bytes % 4 == 0 && array_bytes > 0 && array_bytes < blob.size() - sizeof array_bytes,
                 ExitCode::kData,
                 "{}: its precompiled charsmap of {} bytes says that its array has {} (the text could not be "
                 "normalised); fetch the file again",
                 source, blob.size(), array_bytes);
  units_.resize(array_bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, array_bytes);
  replacements_.assign(blob.substr(4 + array_bytes));
  MAGISTER_CHECK(replacements_.back() == '\0', ExitCode::kData,
                 "{}: its precompiled charsmap does not end with a zero (it is cut off); fetch the file again", source);
  MAGISTER_CHECK(
      find_invalid_utf8(replacements_) == replacements_.size(), ExitCode::kData,
      "{}: its precompiled charsmap replaces texts by what is not UTF-8 (no token could be found in it); fetch "
      "the file again",
      source);
}

// A unit: label in bits 0-7 and 31, "has a value" in bit 8, offset in bits 10-30, scaled by bit 9.
template <typename Found>
void Charsmap::walk(std::string_view text, const Found& found) const {
  if (units_.empty()) return;
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); };
  std::uint32_t node = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return;
    node ^= byte;
    if (node >= units_.size()) return;
    const std::uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFF)) != byte) return;
    node ^= offset(unit);
    if (node >= units_.size()) return;
    // In a damaged array a match may end inside a character; the rest would not be valid text.
    if ((unit >> 8 & 1) != 0 && is_border(text, i + 1) && !found(i + 1, units_[node] & 0x7FFFFFFF)) return;
  }
}

std::string_view Charsmap::replacement(std::uint32_t offset) const {
  if (offset >= replacements_.size() || !is_border(replacements_, offset)) return {};
  return std::string_view(replacements_.data() + offset);  // the last byte is zero
}

std::string_view Charsmap::longest(std::string_view text, std::size_t& length) const {
  length = 0;
  std::uint32_t offset = 0;
  walk(text, [&](std::size_t bytes, std::uint32_t value) {
    length = bytes;
    offset = value;
    return true;
  });
  return length == 0 ? std::string_view() : replacement(offset);
}

std::optional<std::string_view> Charsmap::shortest(std::string_view text) const {
  std::optional<std::string_view> found;
  walk(text, [&](std::size_t, std::uint32_t value) {
    found = replacement(value);
    return false;
  });
  return found;
}

}  // namespace magister
