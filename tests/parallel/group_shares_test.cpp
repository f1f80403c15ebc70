// The group size that computes each unit, by hand and by counting.
#include "magister/parallel/group_shares.h"

#include <gtest/gtest.h>

#include <map>

#include "magister/core/error.h"

namespace magister {
namespace group_shares_test {

std::vector<int> first_sizes(const GroupShares& shares, std::uint64_t count) {
  std::vector<int> sizes;
  for (std::uint64_t unit = 0; unit < count; ++unit) sizes.push_back(shares.size_of(unit));
  return sizes;
}

TEST(GroupShares, OneSizeHasAllUnits) {
  const GroupShares shares(4);
  EXPECT_FALSE(shares.mixed());
  EXPECT_EQ(first_sizes(shares, 3), (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(shares.units_of(4, UnitSet::all(10)).size(), 10u);
}

TEST(GroupShares, SizesAlternateByTheirShares) {
  EXPECT_EQ(first_sizes(GroupShares({{4, 3}, {2, 1}}), 8), (std::vector<int>{4, 4, 2, 4, 4, 4, 2, 4}));
  EXPECT_EQ(first_sizes(GroupShares({{1, 1}, {2, 1}}), 4), (std::vector<int>{2, 1, 2, 1}));
  EXPECT_EQ(first_sizes(GroupShares({{4, 1}, {2, 5}}), 6), (std::vector<int>{2, 2, 4, 2, 2, 2}));
}

TEST(GroupShares, OrderAndCommonDivisorsSayTheSame) {
  const GroupShares one({{4, 3}, {2, 1}}), other({{2, 6}, {4, 18}});
  EXPECT_EQ(one.parts(), other.parts());
  EXPECT_EQ(other.sizes(), "4, 2");
  EXPECT_EQ(other.shares(), "3, 1");
}

TEST(GroupShares, NoDivisionIsRefused) {
  EXPECT_THROW(GroupShares({{4, 3}, {4, 1}}), Error);
  EXPECT_THROW(GroupShares({{4, 0}, {2, 1}}), Error);
  EXPECT_THROW(GroupShares({{5, 1}, {4, 1}, {3, 1}, {2, 1}, {1, 1}}), Error);
  EXPECT_THROW(GroupShares(2).part_of(3), Error);
}

// Every unit has one size; a window of any length has each size's share to within one unit for each size.
TEST(GroupShares, UnitsAreDividedWholeAndEvenly) {
  const GroupShares shares({{8, 7}, {4, 3}, {2, 2}, {1, 1}});
  const std::uint64_t num_units = 10'007;
  const UnitSet pending(num_units, [](std::uint64_t first, std::span<std::uint8_t> flags) {
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = (first + i) % 5 == 1;
  });
  std::uint64_t members = 0;
  for (const auto& part : shares.parts()) {
    const UnitSet own = shares.units_of(part.size, pending);
    for (const std::uint64_t unit : own) {
      EXPECT_EQ(shares.size_of(unit), part.size);
      EXPECT_NE(unit % 5, 1u);
    }
    members += own.size();
  }
  EXPECT_EQ(members, pending.size());
  std::vector<std::uint64_t> counts(4, 0);
  for (std::uint64_t unit = 0; unit < num_units; ++unit) {
    ++counts[shares.part_of(shares.size_of(unit))];
    for (std::size_t i = 0; i < 4; ++i) {
      const double due = static_cast<double>(unit + 1) * shares.parts()[i].share / 13;
      EXPECT_NEAR(static_cast<double>(counts[i]), due, 1.5) << unit;
    }
    if (unit < 40 || unit + 1 == num_units) {
      EXPECT_EQ(shares.units_by_part(unit + 1), counts);
    }
  }
}

}  // namespace group_shares_test
}  // namespace magister
