// CRC-32C against the vectors of RFC 3720 B.4, against the plain loop for every length and alignment up to a few
// hundred bytes, and against itself in pieces.
#include "magister/io/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace magister {
namespace crc32c_test {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(0, {}), 0u);
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xE3069283u);
  Bytes block(32, std::byte{0});
  EXPECT_EQ(crc32c(0, block), 0x8A9136AAu);
  std::fill(block.begin(), block.end(), std::byte{0xff});
  EXPECT_EQ(crc32c(0, block), 0x62A8AB43u);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(0, block), 0x46DD794Eu);
  std::reverse(block.begin(), block.end());
  EXPECT_EQ(crc32c(0, block), 0x113FDB5Cu);
  // An iSCSI read command of RFC 3720.
  const unsigned char command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                     0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                     0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(crc32c(0, std::as_bytes(std::span(command))), 0xD9963A56u);
}

TEST(Crc32c, EqualsThePlainTwin) {
  std::mt19937 random(7);
  Bytes bytes(40'000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 300; ++length) {
      const auto part = std::span<const std::byte>(bytes).subspan(begin, length);
      ASSERT_EQ(crc32c(length, part), crc32c_plain(length, part)) << begin << " + " << length;
    }
  }
  for (int i = 0; i < 50; ++i) {
    const std::size_t begin = random() % 1000, length = random() % (bytes.size() - begin);
    const auto part = std::span<const std::byte>(bytes).subspan(begin, length);
    ASSERT_EQ(crc32c(0, part), crc32c_plain(0, part)) << begin << " + " << length;
  }
}

TEST(Crc32c, PiecesGiveTheWhole) {
  std::mt19937 random(8);
  Bytes bytes(30'000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::uint32_t whole = crc32c(0, bytes);
  for (int i = 0; i < 100; ++i) {
    std::span<const std::byte> rest = bytes;
    std::uint32_t crc = 0;
    while (!rest.empty()) {
      const std::size_t n = std::min<std::size_t>(rest.size(), random() % 9000);
      crc = crc32c(crc, rest.first(n));
      rest = rest.subspan(n);
    }
    ASSERT_EQ(crc, whole);
  }
}

}  // namespace crc32c_test
}  // namespace magister
