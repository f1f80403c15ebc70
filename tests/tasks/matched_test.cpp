// Curves read at equal costs: linear between points, nothing beyond their ends, and points of equal cost in any order.
#include "tasks/evaluate/matched.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace magister {
namespace matched_test {

using nlohmann::ordered_json;

const Curve kPlain{"plain", {{0, 0.2, 0.1, 0.3}, {4, 0.6, 0.5, 0.7}}};

double share(const ordered_json& row, const char* curve) { return row["curves"][curve]["share"].get<double>(); }

TEST(MatchedShares, AreLinearBetweenPoints) {
  const ordered_json rows =
      matched_shares({kPlain, {"other", {{3, 0.5, 0.4, 0.6}, {1, 0.1, 0, 0.2}, {6, 1, 1, 1}}}}, "kl");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["kl"], 1.0);
  EXPECT_DOUBLE_EQ(share(rows[0], "plain"), 0.3);
  EXPECT_DOUBLE_EQ(rows[0]["curves"]["plain"]["wilson95"][1].get<double>(), 0.4);
  EXPECT_DOUBLE_EQ(share(rows[1], "other"), 0.5);
  EXPECT_EQ(rows[2]["kl"], 4.0) << "beyond its end a curve has no value";
}

TEST(MatchedShares, TakeTheHighestOfEqualCosts) {
  std::vector<CurvePoint> points = {
      {2, 0.3, 0.2, 0.4}, {2, 0.5, 0.4, 0.6}, {2, 0.4, 0.3, 0.5}, {0, 0.1, 0, 0.2}, {4, 0.7, 0.6, 0.8}};
  const auto is_before = [](const CurvePoint& a, const CurvePoint& b) {
    return std::pair(a.cost, a.share) < std::pair(b.cost, b.share);
  };
  std::sort(points.begin(), points.end(), is_before);
  do {
    const ordered_json rows =
        matched_shares({{"many", points}, {"other", {{1, 1, 1, 1}, {2, 1, 1, 1}, {3, 1, 1, 1}}}}, "kl");
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_DOUBLE_EQ(share(rows[0], "many"), 0.3);
    EXPECT_DOUBLE_EQ(share(rows[1], "many"), 0.5);
    EXPECT_DOUBLE_EQ(rows[1]["curves"]["many"]["wilson95"][0].get<double>(), 0.4);
    EXPECT_DOUBLE_EQ(share(rows[2], "many"), 0.6);
  } while (std::next_permutation(points.begin(), points.end(), is_before));
}

}  // namespace matched_test
}  // namespace magister
