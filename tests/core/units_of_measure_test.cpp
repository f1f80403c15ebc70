// Sizes and times for people.
#include "magister/core/units_of_measure.h"

#include <gtest/gtest.h>

namespace magister {
namespace units_of_measure_test {

TEST(UnitsOfMeasure, Words) {
  EXPECT_EQ(format_duration(0), "0:00:00");
  EXPECT_EQ(format_duration(59.6), "0:01:00");
  EXPECT_EQ(format_duration(100 * 3600 + 61), "100:01:01");
  EXPECT_EQ(format_duration(1e300), "unknown");
  EXPECT_EQ(format_count(1, "unit"), "1 unit");
  EXPECT_EQ(format_count(0, "unit"), "0 units");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1ull << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(~0ull), "16.0 EiB");
}

}  // namespace units_of_measure_test
}  // namespace magister
