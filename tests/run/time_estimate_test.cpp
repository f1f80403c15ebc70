// Closed forms of the estimate; what is measured is only looked at for being a number.
#include "magister/run/time_estimate.h"

#include <gtest/gtest.h>

namespace magister {
namespace time_estimate_test {

TEST(TimeEstimate, CountsProducts) { EXPECT_DOUBLE_EQ(flops_of({100, 10, 1, 1}, 1e6), 226e6); }

TEST(TimeEstimate, WrittenTokensWaitForWeightsOrProducts) {
  const Speed speed{1e12, 1e11};
  EXPECT_DOUBLE_EQ(seconds_of({1000, 0, 0, 1}, 1e9, 4e9, speed, 1), 2.0);
  EXPECT_DOUBLE_EQ(seconds_of({0, 0, 1000, 1}, 1e9, 4e9, speed, 2), 3.0);
  EXPECT_DOUBLE_EQ(seconds_of({0, 320, 0, 32}, 1e9, 4e9, speed, 1),
                   0.64);  // 10 steps read 40 GB in 0.4 s, the products take 0.64 s
  EXPECT_DOUBLE_EQ(seconds_of({0, 320, 0, 8}, 1e9, 4e9, speed, 1), 1.6);
}

TEST(TimeEstimate, MeasuresThisHost) {
  const Speed of_products = measured_speed({}, false);
  EXPECT_GT(of_products.flops, 1e8);
  EXPECT_EQ(of_products.bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(seconds_of({1000, 0, 0, 1}, 1e9, 4e9, of_products, 1), 2e12 / of_products.flops);
  const Speed of_both = measured_speed({}, true);
  EXPECT_EQ(of_both.flops, of_products.flops);
  EXPECT_GT(of_both.bytes_per_second, 1e8);
  EXPECT_EQ(measured_speed({}, true).bytes_per_second, of_both.bytes_per_second);
}

}  // namespace time_estimate_test
}  // namespace magister
