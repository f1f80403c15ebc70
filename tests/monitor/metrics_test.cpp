// Statistics of samples, and the rates of counters.
#include "magister/monitor/metrics.h"

#include <gtest/gtest.h>

#include <set>

namespace magister {
namespace {

TEST(Metrics, PercentilesAreLinearBetweenValues) {
  Statistics values;
  for (const double value : {5.0, 1.0, 4.0, 2.0, 3.0}) values.add(value);
  EXPECT_EQ(values.count(), 5U);
  EXPECT_DOUBLE_EQ(values.mean(), 3);
  EXPECT_DOUBLE_EQ(values.max(), 5);
  EXPECT_DOUBLE_EQ(values.percentile(50), 3);
  EXPECT_DOUBLE_EQ(values.percentile(5), 1.2);  // numpy.percentile([1, 2, 3, 4, 5], 5)
  EXPECT_DOUBLE_EQ(values.percentile(95), 4.8);
}

TEST(Metrics, AWeekOfSamplesNeedsLittleMemoryAndKeepsPercentiles) {
  Statistics values;
  constexpr int kSamples = 120'000;
  for (int i = 0; i < kSamples; ++i) values.add(i % 1000);
  EXPECT_EQ(values.count(), static_cast<std::uint64_t>(kSamples));
  EXPECT_NEAR(values.mean(), 499.5, 1e-9);
  EXPECT_NEAR(values.percentile(5), 50, 15);
  EXPECT_NEAR(values.percentile(95), 950, 15);
}

TEST(Metrics, CountersAreAggregatedAsRates) {
  Aggregates gpu(gpu_metrics());
  gpu.add({{"energy_joules_total", 1000}, {"power_watts", 300}}, 10);
  gpu.add({{"energy_joules_total", 2000}, {"power_watts", 500}}, 15);
  gpu.add({{"energy_joules_total", 5000}, {"power_watts", 400}}, 25);
  const auto all = gpu.summary();
  EXPECT_DOUBLE_EQ(all["energy_watts"]["mean"].get<double>(), 250);  // 200 and 300 W
  EXPECT_DOUBLE_EQ(all["energy_watts"]["increase"].get<double>(), 4000);
  EXPECT_DOUBLE_EQ(all["power_watts"]["mean"].get<double>(), 400);
  EXPECT_FALSE(all.contains("temperature_celsius"));
  EXPECT_DOUBLE_EQ(*gpu.increase("energy_joules_total"), 4000);
}

TEST(Metrics, ACounterThatBeganAnewAddsNothing) {
  Aggregates gpu(gpu_metrics());
  gpu.add({{"energy_joules_total", 9000}}, 0);
  gpu.add({{"energy_joules_total", 100}}, 5);  // the driver was loaded again
  gpu.add({{"energy_joules_total", 600}}, 10);
  EXPECT_DOUBLE_EQ(*gpu.increase("energy_joules_total"), 500);
}

TEST(Metrics, NamesAreInBaseUnits) {
  const std::set<std::string> known = {"bytes",  "joules",  "celsius",   "watts",  "hertz",
                                       "ratio",  "seconds", "second",    "units",  "done",
                                       "tokens", "loss",    "processes", "errors", "cores"};
  for (const auto& metrics : {rank_metrics(), gpu_metrics(), task_metrics()}) {
    for (const Metric& metric : metrics) {
      std::string name = metric.name;
      EXPECT_EQ(metric.counter, name.ends_with("_total")) << name;
      if (metric.counter) name.resize(name.size() - 6);
      const std::string unit = name.substr(name.rfind('_') + 1);
      EXPECT_TRUE(known.contains(unit) || name.starts_with("throttled_")) << metric.name;
      EXPECT_EQ(find_metric(metrics, metric.name), &metric) << "two of one name";
    }
  }
}

}  // namespace
}  // namespace magister
