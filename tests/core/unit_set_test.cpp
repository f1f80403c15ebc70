// UnitSet against a plain list of the same numbers, and what it weighs at 10^8 units.
#include "magister/core/unit_set.h"

#include <gtest/gtest.h>

#include <random>

namespace magister {
namespace unit_set_test {

using Flags = std::vector<std::uint8_t>;

UnitSet set_of(const Flags& flags) {
  return UnitSet(flags.size(), [&](std::uint64_t first, std::span<std::uint8_t> out) {
    std::copy_n(flags.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
  });
}

void expect_same(const UnitSet& set, const Flags& flags) {
  std::vector<std::uint64_t> want;
  std::vector<IndexRange> runs;
  for (std::uint64_t i = 0; i < flags.size(); ++i) {
    if (flags[i] != 0) continue;
    if (runs.empty() || runs.back().end != i) runs.push_back({i, i});
    ++runs.back().end;
    want.push_back(i);
  }
  ASSERT_EQ(set.size(), want.size());
  EXPECT_EQ(set.num_units(), flags.size());
  EXPECT_EQ(std::vector<std::uint64_t>(set.begin(), set.end()), want);
  for (std::size_t i = 0; i < want.size(); i += 1 + want.size() / 1000) ASSERT_EQ(set[i], want[i]) << i;
  std::vector<IndexRange> found;
  set.for_each_run([&](IndexRange run) { found.push_back(run); });
  EXPECT_EQ(found, runs);
}

TEST(UnitSet, HoldsWhatIsNotDone) {
  std::mt19937_64 random(1);
  for (const std::size_t n : {0u, 1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 8192u, 20000u}) {
    for (const double share_done : {0.0, 0.001, 0.5, 0.999, 1.0}) {
      Flags flags(n);
      for (std::uint8_t& flag : flags) flag = std::bernoulli_distribution(share_done)(random);
      SCOPED_TRACE(testing::Message() << n << " units, " << share_done << " done");
      const UnitSet set = set_of(flags);
      expect_same(set, flags);
      expect_same(UnitSet::from_bytes(set.to_bytes()), flags);
      if (share_done == 0) expect_same(UnitSet::all(n), flags);
    }
  }
}

TEST(UnitSet, PartsThatAreReadOneByOneFitTogether) {
  Flags flags((1 << 21) + 4097, 0);
  for (std::size_t i = 0; i < flags.size(); i += 777) flags[i] = 1;
  expect_same(set_of(flags), flags);
}

TEST(UnitSet, AHundredMillionUnitsAreSmall) {
  constexpr std::uint64_t kUnits = 100'000'000;
  EXPECT_LT(UnitSet::all(kUnits).to_bytes().size(), 400'000u);
  // A run that was stopped: done up to some place, and around it what 500 groups had in their hands.
  const UnitSet stopped(kUnits, [](std::uint64_t first, std::span<std::uint8_t> flags) {
    for (std::size_t i = 0; i < flags.size(); ++i)
      flags[i] = first + i < 40'000'000 || (first + i < 40'001'000 && i % 2 == 0);
  });
  EXPECT_EQ(stopped.size(), kUnits - 40'000'500);
  EXPECT_LT(stopped.to_bytes().size(), 410'000u);
  EXPECT_EQ(stopped[stopped.size() - 1], kUnits - 1);
  // The worst: every other unit.
  const UnitSet every_other(kUnits, [](std::uint64_t, std::span<std::uint8_t> flags) {
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i % 2;
  });
  EXPECT_LT(every_other.to_bytes().size(), 13'000'000u);
}

}  // namespace unit_set_test
}  // namespace magister
