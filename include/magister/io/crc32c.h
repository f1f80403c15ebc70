// CRC-32C (Castagnoli), the checksum of a committed unit. Source: RFC 3720 appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace magister {

// Continues a checksum: crc32c(crc32c(0, a), b) == crc32c(0, a + b). SSE4.2 instructions, about 8 GB/s a core.
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);
// Computes the same bit by bit, for the tests.
std::uint32_t crc32c_plain(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace magister
