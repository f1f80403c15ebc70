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

// Two amounts that differ look different, however little it is; equal ones stay short.
TEST(UnitsOfMeasure, AmountsThatAreComparedAreToldApart) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(decimal_bytes_apart(22'124'000'000, 22'080'000'000), Pair("22.12 GB", "22.08 GB"));
  EXPECT_EQ(decimal_bytes_apart(22'080'000'001, 22'080'000'000), Pair("22.080000001 GB", "22.080000000 GB"));
  EXPECT_EQ(decimal_bytes_apart(5, 5), Pair("0.00 GB", "0.00 GB"));
  EXPECT_EQ(decimal_bytes_apart(75'000'000'000, 73'600'000'000), Pair("75.0 GB", "73.6 GB"));
  EXPECT_EQ(format_bytes_apart(3ull << 30, 2ull << 30), Pair("3.0 GiB", "2.0 GiB"));
  EXPECT_EQ(format_bytes_apart((3ull << 30) + (20ull << 20), 3ull << 30), Pair("3.02 GiB", "3.00 GiB"));
  EXPECT_EQ(decimal_bytes(9'999'000'000), "10.00 GB");
  EXPECT_EQ(decimal_bytes(22'124'000'000), "22.1 GB");
}

}  // namespace units_of_measure_test
}  // namespace magister
