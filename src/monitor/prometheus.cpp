// Source: Prometheus, Exposition formats. Values have all digits that a double needs; counters end in "_total".
#include "magister/monitor/prometheus.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/monitor/metrics.h"
#include "magister/monitor/rank_states.h"

namespace magister {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string shown(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels)
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", name, escaped(value));
  return out;
}

// One object of values with its labels.
struct Series {
  std::string labels;
  nlohmann::json values;
};

void add_metrics(std::string& out, const char* scope, std::span<const Metric> metrics, const std::vector<Series>& all) {
  for (const Metric& metric : metrics) {
    std::string lines;
    for (const Series& one : all) {
      const auto value = one.values.is_object() ? one.values.find(metric.name) : one.values.end();
      if (value == one.values.end() || !value->is_number()) continue;
      lines += fmt::format("magister_{}_{}{{{}}} {}\n", scope, metric.name, one.labels, value->get<double>());
    }
    if (lines.empty()) continue;
    out += fmt::format("# HELP magister_{0}_{1} {2}\n# TYPE magister_{0}_{1} {3}\n{4}", scope, metric.name, metric.help,
                       metric.counter ? "counter" : "gauge", lines);
  }
}

constexpr Metric kStateMetrics[] = {
    {"sample_timestamp_seconds", false, nullptr, "time of the rank's last sample, in seconds since 1970"},
    {"tokens_per_second", false, nullptr, "tokens a second of the group that the rank leads, in its task"},
};

std::string rank_text(const nlohmann::json& rank) {
  return rank.is_number() ? fmt::format("{:.0f}", rank.get<double>()) : std::string();
}

}  // namespace

std::string prometheus_text(const std::string& run, std::span<const nlohmann::json> states) {
  std::vector<Series> ranks, of_state, gpus, tasks;
  for (const nlohmann::json& state : states) {
    const Labels labels = {
        {"run", run}, {"rank", rank_text(state_member(state, "rank"))}, {"host", state_text(state, "host")}};
    ranks.push_back({shown(labels), state_member(state, "values")});
    of_state.push_back({shown(labels), {{"sample_timestamp_seconds", state_number(state, "time")}}});
    for (const nlohmann::json& gpu : state_member(state, "gpus")) {
      Labels of_gpu = labels;
      of_gpu.emplace_back("gpu", fmt::format("{:.0f}", state_number(gpu, "index")));
      of_gpu.emplace_back("uuid", state_text(gpu, "uuid"));
      gpus.push_back({shown(of_gpu), state_member(gpu, "values")});
    }
    const nlohmann::json progress = state_member(state, "progress");
    if (!progress.is_object()) continue;
    tasks.push_back({shown({{"run", run}, {"task", state_text(progress, "task")}}), progress});
    for (const nlohmann::json& rate : state_member(progress, "rank_rates")) {
      const std::string rank = rank_text(state_member(rate, "rank"));
      of_state.push_back({shown({{"run", run}, {"rank", rank}, {"task", state_text(progress, "task")}}), rate});
    }
  }
  std::string out;
  add_metrics(out, "rank", rank_metrics(), ranks);
  add_metrics(out, "rank", kStateMetrics, of_state);
  add_metrics(out, "gpu", gpu_metrics(), gpus);
  add_metrics(out, "task", task_metrics(), tasks);
  return out;
}

std::vector<std::string> prometheus_names() {
  std::vector<std::string> names;
  const auto add = [&](const char* scope, std::span<const Metric> metrics) {
    for (const Metric& metric : metrics) names.push_back(fmt::format("magister_{}_{}", scope, metric.name));
  };
  add("rank", rank_metrics());
  add("rank", kStateMetrics);
  add("gpu", gpu_metrics());
  add("task", task_metrics());
  return names;
}

}  // namespace magister
