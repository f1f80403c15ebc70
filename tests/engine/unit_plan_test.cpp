// The plan's rule: greedy packing, windows, and the state handed from rank to rank.
#include "magister/engine/unit_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace magister {
namespace unit_plan_test {

std::vector<std::size_t> unit_begins(const std::vector<std::uint64_t>& lengths, std::uint64_t unit_tokens,
                                     std::size_t num_parts) {
  std::vector<std::size_t> begins;
  UnitPacker::State state;
  for (std::size_t part = 0; part < num_parts; ++part) {
    UnitPacker packer(unit_tokens, state);
    for (std::size_t i = lengths.size() * part / num_parts; i < lengths.size() * (part + 1) / num_parts; ++i) {
      if (packer.add(lengths[i])) begins.push_back(i);
    }
    state = packer.state();
  }
  EXPECT_EQ(state.num_units, begins.size());
  return begins;
}

TEST(UnitPacker, PacksGreedilyAndGivesALongSampleItsOwnUnit) {
  EXPECT_EQ(unit_begins({4, 5, 3, 12, 1}, 10, 1), (std::vector<std::size_t>{0, 2, 3, 4}));
}

TEST(UnitPacker, FillsAUnitToTheLastToken) {
  EXPECT_EQ(unit_begins({5, 5, 1}, 10, 1), (std::vector<std::size_t>{0, 2}));
}

TEST(UnitPacker, IsTheSameForAnyNumberOfParts) {
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t i = 0; i < 1000; ++i) lengths.push_back(i * 7919 % 97);
  const auto whole = unit_begins(lengths, 256, 1);
  for (std::size_t parts : {2u, 3u, 8u, 64u}) EXPECT_EQ(unit_begins(lengths, 256, parts), whole) << parts;
}

TEST(UnitPacker, LimitsTheNumberOfEmptySamplesInAUnit) {
  const std::vector<std::uint64_t> empty(UnitPacker::kMaxSamples + 1, 0);
  EXPECT_EQ(unit_begins(empty, 10, 1), (std::vector<std::size_t>{0, UnitPacker::kMaxSamples}));
}

TEST(Windows, CoverTheRecord) {
  EXPECT_EQ(num_windows(10, 4, 3), 3u);
  EXPECT_EQ(num_windows(4, 4, 3), 1u);
  EXPECT_EQ(num_windows(0, 4, 4), 1u);
  EXPECT_EQ(num_windows(5, 4, 4), 2u);
  for (std::uint64_t length = 1; length < 60; ++length) {
    for (std::uint64_t max_length = 1; max_length < 12; ++max_length) {
      for (std::uint64_t stride = 1; stride <= max_length; ++stride) {
        const std::uint64_t last_begin = (num_windows(length, max_length, stride) - 1) * stride;
        EXPECT_LT(last_begin, length);
        EXPECT_GE(last_begin + max_length, length);
      }
    }
  }
}

}  // namespace unit_plan_test
}  // namespace magister
