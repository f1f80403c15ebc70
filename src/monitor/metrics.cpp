// See metrics.h. The order of a table is the order of the output.
#include "magister/monitor/metrics.h"

#include <algorithm>
#include <cmath>

namespace magister {
namespace {

constexpr Metric kRank[] = {
    {"cpu_seconds_total", true, "cpu_cores", "CPU time of the process, of all threads"},
    {"resident_memory_bytes", false, nullptr, "memory of the process that is in RAM, mapped files included"},
    {"read_bytes_total", true, "read_bytes_per_second", "bytes that the process caused to be read from file systems"},
    {"written_bytes_total", true, "written_bytes_per_second", "bytes that the process wrote to file systems"},
    {"host_cpu_ratio", false, nullptr, "share of the host's CPU time that was not idle since the last sample"},
    {"host_memory_available_bytes", false, nullptr, "memory that the host could give to processes"},
    {"host_network_receive_bytes_total", true, "host_network_receive_bytes_per_second",
     "bytes that the host received over all interfaces except the loopback"},
    {"host_network_transmit_bytes_total", true, "host_network_transmit_bytes_per_second",
     "bytes that the host sent over all interfaces except the loopback"},
    {"monitor_cpu_seconds_total", true, "monitor_cpu_cores", "CPU time of the thread that takes these samples"},
};

constexpr Metric kGpu[] = {
    {"utilization_ratio", false, nullptr, "share of the last sample period in which a kernel ran"},
    {"memory_busy_ratio", false, nullptr, "share of the last sample period in which device memory was read or written"},
    {"memory_used_bytes", false, nullptr, "device memory in use by all processes, the driver's share included"},
    {"memory_total_bytes", false, nullptr, "device memory"},
    {"temperature_celsius", false, nullptr, "temperature of the GPU"},
    {"temperature_limit_celsius", false, nullptr, "temperature at which the hardware lowers its clocks"},
    {"power_watts", false, nullptr, "power that the board draws"},
    {"power_limit_watts", false, nullptr, "enforced power limit"},
    {"energy_joules_total", true, "energy_watts", "energy since the driver was loaded"},
    {"sm_clock_hertz", false, nullptr, "clock of the multiprocessors"},
    {"memory_clock_hertz", false, nullptr, "clock of the device memory"},
    {"throttled_power_cap", false, nullptr, "1: clocks are lowered to keep the power limit"},
    {"throttled_thermal", false, nullptr, "1: clocks are lowered because the GPU is too hot"},
    {"throttled_hardware", false, nullptr, "1: the hardware lowers clocks: heat, or the power supply's brake"},
    {"ecc_uncorrected_errors_total", true, nullptr,
     "memory errors since the driver was loaded that were not corrected"},
    {"xid_errors_total", true, nullptr, "Xid errors of the driver since the run began"},
    {"processes", false, nullptr, "processes that compute on the GPU"},
    {"nvlink_transmit_bytes_total", true, "nvlink_transmit_bytes_per_second", "data sent over NVLink"},
    {"nvlink_receive_bytes_total", true, "nvlink_receive_bytes_per_second", "data received over NVLink"},
    {"pcie_transmit_bytes_per_second", false, nullptr, "data sent over PCIe in a sample of 20 ms"},
    {"pcie_receive_bytes_per_second", false, nullptr, "data received over PCIe in a sample of 20 ms"},
};

constexpr Metric kTask[] = {
    {"units", false, nullptr, "units of this start, or steps of a training"},
    {"units_done", false, nullptr, "units that are committed, or steps that are done"},
    {"tokens", false, nullptr, "tokens of all units of this start"},
    {"tokens_done", false, nullptr, "tokens of the committed units"},
    {"tokens_per_second", false, nullptr, "tokens read a second, of all ranks together"},
    {"written_tokens", false, nullptr, "tokens generated in this start"},
    {"written_tokens_per_second", false, nullptr, "tokens generated a second, of all ranks together"},
    {"loss", false, nullptr, "loss of a training's last logged step"},
};

double percentile_of_sorted(const std::vector<double>& sorted, double p) {
  if (sorted.empty()) return 0;
  const double place = p / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

std::span<const Metric> rank_metrics() { return kRank; }
std::span<const Metric> gpu_metrics() { return kGpu; }
std::span<const Metric> task_metrics() { return kTask; }

const Metric* find_metric(std::span<const Metric> metrics, std::string_view name) {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const Metric& metric) { return metric.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

std::optional<double> reading(const Readings& readings, std::string_view name) {
  const auto found =
      std::find_if(readings.begin(), readings.end(), [&](const auto& entry) { return entry.first == name; });
  return found == readings.end() ? std::nullopt : std::optional(found->second);
}

void Statistics::add(double value) {
  if (!std::isfinite(value)) return;
  max_ = count_ == 0 ? value : std::max(max_, value);
  sum_ += value;
  if (count_++ % stride_ != 0) return;
  kept_.push_back(value);
  if (kept_.size() < kMostKept) return;
  for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
  kept_.resize((kept_.size() + 1) / 2);
  stride_ *= 2;
}

double Statistics::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Statistics::percentile(double p) const {
  std::vector<double> sorted = kept_;
  std::sort(sorted.begin(), sorted.end());
  return percentile_of_sorted(sorted, p);
}

void Aggregates::add(const Readings& now, double seconds) {
  const double passed = seconds - before_seconds_;
  for (const auto& [name, value] : now) {
    const Metric* const metric = find_metric(metrics_, name);
    if (metric == nullptr) continue;
    if (!metric->counter) {
      statistics_[name].add(value);
      continue;
    }
    const std::optional<double> before = reading(before_, name);
    if (!before || value < *before || passed <= 0) continue;  // a counter that was reset, or a first reading
    increases_[name] += value - *before;
    if (metric->rate != nullptr) statistics_[metric->rate].add((value - *before) / passed);
  }
  begin_at(now, seconds);
}

void Aggregates::begin_at(const Readings& now, double seconds) {
  before_ = now;
  before_seconds_ = seconds;
}

nlohmann::ordered_json Aggregates::summary() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const Metric& metric : metrics_) {
    const char* const name = metric.rate != nullptr ? metric.rate : metric.name;
    nlohmann::ordered_json one = nlohmann::ordered_json::object();
    if (const auto at = statistics_.find(name); at != statistics_.end() && at->second.count() > 0) {
      const Statistics& values = at->second;
      one = {
          {"mean", values.mean()}, {"p5", values.percentile(5)}, {"p95", values.percentile(95)}, {"max", values.max()}};
    }
    if (const auto more = increase(metric.name)) one["increase"] = *more;
    if (!one.empty()) out[name] = one;
  }
  return out;
}

nlohmann::ordered_json Aggregates::means() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const Metric& metric : metrics_) {
    const char* const name = metric.rate != nullptr ? metric.rate : metric.name;
    if (const auto at = statistics_.find(name); at != statistics_.end() && at->second.count() > 0)
      out[name] = at->second.mean();
  }
  return out;
}

std::optional<double> Aggregates::increase(std::string_view counter) const {
  const auto at = increases_.find(counter);
  return at == increases_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace magister
