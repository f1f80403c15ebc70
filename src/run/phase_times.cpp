// See phase_times.h.
#include "magister/run/phase_times.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "magister/core/log.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

double tokens_a_second(std::uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

void PhaseTimes::add(const std::string& phase, double seconds) {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::find_if(seconds_.begin(), seconds_.end(), [&](const auto& entry) { return entry.first == phase; });
  if (at != seconds_.end()) {
    at->second += seconds;
  } else {
    seconds_.emplace_back(phase, seconds);
  }
}

PhaseTimes::Span::Span(PhaseTimes& times, std::string phase)
    : times_(times), phase_(std::move(phase)), begin_(std::chrono::steady_clock::now()) {}

PhaseTimes::Span::~Span() {
  times_.add(phase_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
}

std::vector<std::pair<std::string, double>> PhaseTimes::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

std::vector<PhaseRow> gather_phases(const Communicator& world, const PhaseTimes& times) {
  std::string mine;  // lines of "seconds phase"
  for (const auto& [phase, seconds] : times.seconds()) mine += fmt::format("{} {}\n", seconds, phase);
  std::vector<PhaseRow> rows;
  std::vector<int> seen;  // ranks that have the phase
  for (const std::string& text : world.all_gather(mine)) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::string_view entry = std::string_view(text).substr(begin, end - begin);
      begin = end + 1;
      const std::size_t space = entry.find(' ');
      const std::string_view number = entry.substr(0, space);
      double seconds = 0;
      std::from_chars(number.data(), number.data() + number.size(), seconds);
      const std::string phase(entry.substr(space + 1));
      auto at = std::find_if(rows.begin(), rows.end(), [&](const PhaseRow& row) { return row.phase == phase; });
      if (at == rows.end()) {
        rows.push_back({phase, seconds, 0, seconds});
        seen.push_back(0);
        at = rows.end() - 1;
      }
      at->min = std::min(at->min, seconds);
      at->mean += seconds / world.size();
      at->max = std::max(at->max, seconds);
      ++seen[static_cast<std::size_t>(at - rows.begin())];
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (seen[i] < world.size()) rows[i].min = 0;
  }
  return rows;
}

namespace {

double imbalance(const std::vector<PhaseRow>& rows) {
  double mean = 0, max = 0;
  for (const PhaseRow& row : rows) {
    if (!row.phase.starts_with("compute")) continue;
    mean += row.mean;
    max += row.max;
  }
  return mean > 0 ? max / mean - 1 : 0;
}

}  // namespace

std::string phase_table(const std::vector<PhaseRow>& rows, std::uint64_t tokens, double wall_seconds,
                        std::uint64_t written) {
  std::size_t width = 5;
  for (const PhaseRow& row : rows) width = std::max(width, row.phase.size());
  std::string table =
      fmt::format("{:<{}}  {:>10} {:>10} {:>10}   seconds over the ranks\n", "phase", width, "min", "mean", "max");
  for (const PhaseRow& row : rows) {
    table += fmt::format("{:<{}}  {:>10.3f} {:>10.3f} {:>10.3f}\n", row.phase, width, row.min, row.mean, row.max);
  }
  if (written > 0) {
    table += fmt::format("{} written tokens in {:.2f} s: {:.1f} tokens/s; {} of prompts: {:.1f} tokens/s", written,
                         wall_seconds, tokens_a_second(written, wall_seconds), tokens,
                         tokens_a_second(tokens, wall_seconds));
  } else if (tokens == 0) {  // tasks without a model read no tokens
    table += fmt::format("{:.2f} s", wall_seconds);
  } else {
    table += fmt::format("{} tokens in {:.2f} s: {:.1f} tokens/s", tokens, wall_seconds,
                         tokens_a_second(tokens, wall_seconds));
  }
  return table + fmt::format("; compute imbalance {:.1f} %", 100 * imbalance(rows));
}

void report_phases(const Communicator& world, const PhaseTimes& times, const std::string& task,
                   const Computed& computed, RunLog& log) {
  const std::vector<PhaseRow> rows = gather_phases(world, times);
  if (world.rank() != 0) return;
  log_info("{}: time by phase\n{}", task, phase_table(rows, computed.tokens, computed.wall_seconds, computed.written));
  nlohmann::ordered_json phases = nlohmann::ordered_json::array();
  for (const PhaseRow& row : rows) {
    phases.push_back({{"phase", row.phase}, {"min", row.min}, {"mean", row.mean}, {"max", row.max}});
  }
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (std::size_t group = 0; group < computed.tokens_by_group.size(); ++group) {
    groups.push_back({{"rank", computed.leaders[group]}, {"tokens", computed.tokens_by_group[group]}});
  }
  nlohmann::ordered_json event = {{"task", task},
                                  {"ranks", world.size()},
                                  {"tokens", computed.tokens},
                                  {"wall_seconds", computed.wall_seconds},
                                  {"tokens_per_second", tokens_a_second(computed.tokens, computed.wall_seconds)}};
  if (computed.written > 0) {
    event["written_tokens"] = computed.written;
    event["written_tokens_per_second"] = tokens_a_second(computed.written, computed.wall_seconds);
  }
  event.update({{"groups", groups}, {"imbalance", imbalance(rows)}, {"phases", phases}});
  log.event("phases", event);
}

}  // namespace magister
