// The measured quantities by name. One name is used everywhere: in the files of a run's folder monitor/, in run.jsonl,
// in the table of `top` and, with "magister_<scope>_" before it, in the format of Prometheus. All units are base units:
// seconds, bytes, watts, joules, hertz, degrees Celsius and ratios from 0 to 1.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace magister {

struct Metric {
  const char* name;
  bool counter;  // it only grows; its name ends in "_total"
  // Aggregates of a counter are those of its rate, which has this name; null: aggregated as it is.
  const char* rate;
  const char* help;
};

std::span<const Metric> rank_metrics();  // of a process and of its host, from /proc
std::span<const Metric> gpu_metrics();   // of one GPU, from NVML
std::span<const Metric> task_metrics();  // progress of a task; the names of run.jsonl's event "progress"
const Metric* find_metric(std::span<const Metric> metrics, std::string_view name);

// Values at one moment, by name. A quantity that cannot be measured here is absent.
using Readings = std::vector<std::pair<std::string, double>>;
std::optional<double> reading(const Readings& readings, std::string_view name);

// Mean, maximum and percentiles of one quantity over a time of any length. At most kMostKept values are kept: beyond
// that every second one is dropped, and from then on every second new one.
class Statistics {
 public:
  static constexpr std::size_t kMostKept = 4096;
  void add(double value);
  std::uint64_t count() const { return count_; }
  double mean() const;
  double max() const { return max_; }
  double percentile(double p) const;  // p: 0 .. 100, linear between the kept values; 0 if there are none

 private:
  std::vector<double> kept_;
  std::uint64_t count_ = 0, stride_ = 1;
  double sum_ = 0, max_ = 0;
};

// Statistics of all quantities of one scope since construction. Gauges are added as they are, counters as their rate
// between two readings.
class Aggregates {
 public:
  explicit Aggregates(std::span<const Metric> metrics) : metrics_(metrics) {}
  // seconds: a steady clock's; readings must be added in the order of time.
  void add(const Readings& now, double seconds);
  // Takes `now` as the reading before the first one, without adding it.
  void begin_at(const Readings& now, double seconds);
  // {name: {"mean", "p5", "p95", "max"}}; the rate of a counter also has "increase".
  nlohmann::ordered_json summary() const;
  nlohmann::ordered_json means() const;  // {name: mean}
  std::optional<double> increase(std::string_view counter) const;

 private:
  std::span<const Metric> metrics_;
  std::map<std::string, Statistics, std::less<>> statistics_;
  std::map<std::string, double, std::less<>> increases_;
  Readings before_;
  double before_seconds_ = 0;
};

}  // namespace magister
