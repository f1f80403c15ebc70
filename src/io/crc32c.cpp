// CRC-32C, eight bytes per instruction.
#include "magister/io/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace magister {

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  for (; left > 0; ++at, --left) {
    state = _mm_crc32_u8(static_cast<std::uint32_t>(state), std::to_integer<std::uint8_t>(*at));
  }
  return ~static_cast<std::uint32_t>(state);
}

std::uint32_t crc32c_plain(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint32_t state = ~crc;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~state;
}

}  // namespace magister
