// See usage.h.
#include "magister/run/usage.h"

#include <algorithm>
#include <map>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/host_name.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kMonitorInterval{5'000};

// The values of the ranks, or those of their GPUs.
std::vector<Json> values_of(const Json& usage, bool of_gpus) {
  std::vector<Json> values;
  for (const Json& rank : usage["ranks"]) {
    if (!of_gpus) values.push_back(rank["values"]);
    for (const Json& gpu : of_gpus ? rank["gpus"] : Json::array()) values.push_back(gpu["values"]);
  }
  return values;
}

struct Range {
  double mean = 0, p5 = 0, p95 = 0;
};

std::optional<Range> range_of(const std::vector<Json>& values, const char* name) {
  Range range;
  int count = 0;
  for (const Json& one : values) {
    if (!one.contains(name) || !one[name].contains("mean")) continue;
    const double p5 = one[name]["p5"].get<double>(), p95 = one[name]["p95"].get<double>();
    range = {range.mean + one[name]["mean"].get<double>(), count == 0 ? p5 : std::min(range.p5, p5),
             std::max(range.p95, p95)};
    ++count;
  }
  if (count == 0) return std::nullopt;
  range.mean /= count;
  return range;
}

std::optional<double> energy_of(const Json& usage) {
  std::map<std::string, double> by_gpu;
  for (const Json& rank : usage["ranks"]) {
    for (const Json& gpu : rank["gpus"]) {
      if (gpu["values"].contains("energy_watts") && gpu["values"]["energy_watts"].contains("increase"))
        by_gpu[gpu["whole_uuid"].get<std::string>()] = gpu["values"]["energy_watts"]["increase"].get<double>();
    }
  }
  double sum = 0;
  for (const auto& [uuid, joules] : by_gpu) sum += joules;
  return by_gpu.empty() ? std::nullopt : std::optional(sum);
}

class MonitorReader final : public ProgressReader {
 public:
  MonitorReader(Monitor& monitor, std::function<std::vector<std::pair<std::uint64_t, std::uint64_t>>()> rank_tokens)
      : ProgressReader(kMonitorInterval), monitor_(monitor), rank_tokens_(std::move(rank_tokens)) {}
  void show(const ProgressMetrics& now) override {
    Json progress = named_metrics(now);
    progress["rank_rates"] = Json::array();
    for (const auto& [rank, tokens] : rank_tokens_()) {
      const double rate = now.elapsed_seconds > 0 ? static_cast<double>(tokens) / now.elapsed_seconds : 0;
      progress["rank_rates"].push_back({{"rank", rank}, {"tokens_per_second", rate}});
    }
    monitor_.show_progress(progress);
  }

 private:
  Monitor& monitor_;
  std::function<std::vector<std::pair<std::uint64_t, std::uint64_t>>()> rank_tokens_;
};

}  // namespace

Json gathered_usage(const Communicator& world, std::uint64_t job_rank, const Monitor::Watch& watch) {
  Json mine = {{"rank", job_rank}, {"host", host_name()}};
  mine.update(watch.summary());
  Json usage = {{"ranks", Json::array()}};
  for (const std::string& text : world.all_gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace)))
    usage["ranks"].push_back(Json::parse(text));
  if (const auto joules = energy_of(usage)) usage["energy_joules"] = *joules;
  return usage;
}

void add_energy_of_tokens(Json& usage, std::uint64_t tokens) {
  if (!usage.contains("energy_joules") || tokens == 0) return;
  usage["joules_per_million_tokens"] = 1e6 * usage["energy_joules"].get<double>() / static_cast<double>(tokens);
}

std::string describe_usage(const Json& usage) {
  std::vector<std::string> parts;
  const std::vector<Json> ranks = values_of(usage, false), gpus = values_of(usage, true);
  if (const auto cores = range_of(ranks, "cpu_cores"))
    parts.push_back(fmt::format("cores a rank {:.2f} ({:.2f} to {:.2f})", cores->mean, cores->p5, cores->p95));
  if (const auto use = range_of(gpus, "utilization_ratio")) {
    parts.push_back(fmt::format("GPU use {:.0f} % ({:.0f} to {:.0f})", 100 * use->mean, 100 * use->p5, 100 * use->p95));
  }
  if (const auto power = range_of(gpus, "power_watts"))
    parts.push_back(fmt::format("{:.0f} W a GPU ({:.0f} to {:.0f})", power->mean, power->p5, power->p95));
  if (usage.contains("energy_joules"))
    parts.push_back(fmt::format("energy {:.2g} J", usage["energy_joules"].get<double>()));
  if (usage.contains("joules_per_million_tokens"))
    parts.push_back(fmt::format("{:.2g} J per million tokens", usage["joules_per_million_tokens"].get<double>()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::unique_ptr<ProgressReader> monitor_progress_reader(
    Monitor& monitor, std::function<std::vector<std::pair<std::uint64_t, std::uint64_t>>()> rank_tokens) {
  return std::make_unique<MonitorReader>(monitor, std::move(rank_tokens));
}

}  // namespace magister
