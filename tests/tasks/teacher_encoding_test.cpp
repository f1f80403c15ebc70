// Ids of any width in bits and back, and what a row's target must agree with.
#include <gtest/gtest.h>

#include <random>

#include "tasks/teacher_logits/encoding.h"

namespace magister {
namespace teacher_encoding_test {

TEST(TeacherEncoding, IdsComeBackFromAnyNumberOfBits) {
  std::mt19937 random(4);
  for (std::uint64_t bits = 1; bits <= 31; ++bits) {
    for (const std::size_t count : {1, 7, 8, 64, 65}) {
      std::vector<std::int32_t> ids(count), again(count, -7);
      for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() & ((1u << bits) - 1));
      std::vector<std::byte> row(packed_bytes(count, bits), std::byte{0xff});
      pack_ids(ids, bits, row);
      unpack_ids(row, bits, again);
      EXPECT_EQ(ids, again) << bits << " bits, " << count << " ids";
    }
  }
}

TEST(TeacherEncoding, BytesOfARow) {
  EXPECT_EQ(id_bits(1), 1u);
  EXPECT_EQ(id_bits(2), 1u);
  EXPECT_EQ(id_bits(320), 9u);
  EXPECT_EQ(id_bits(49152), 16u);
  EXPECT_EQ(id_bits(65536), 16u);
  EXPECT_EQ(id_bits(65537), 17u);
  EXPECT_EQ(packed_bytes(64, id_bits(128256)) + 64 * 2, 264u);
  EXPECT_EQ(packed_bytes(64, id_bits(49152)) + 64 * 2, 256u);
  // Lowest bit first: 1, then 2 of 9 bits.
  const std::vector<std::int32_t> ids = {1, 2};
  std::vector<std::byte> row(3);
  pack_ids(ids, 9, row);
  EXPECT_EQ(row[0], std::byte{1});
  EXPECT_EQ(row[1], std::byte{4});
}

TEST(TeacherEncoding, TargetsAgreeWithKeptEntries) {
  const std::vector<std::int32_t> ids = {5, 9};
  const std::vector<float> logprobs = {-0.5f, -2.0f};
  EXPECT_TRUE(target_agrees(ids, logprobs, ColumnType::kF32, 9, -2.0f));
  EXPECT_FALSE(target_agrees(ids, logprobs, ColumnType::kF32, 9, -2.001f));
  EXPECT_TRUE(target_agrees(ids, logprobs, ColumnType::kF16, 9, -2.0001f));
  EXPECT_TRUE(target_agrees(ids, logprobs, ColumnType::kF32, 7, -2.5f));
  EXPECT_FALSE(target_agrees(ids, logprobs, ColumnType::kF32, 7, -1.5f));
}

}  // namespace teacher_encoding_test
}  // namespace magister
