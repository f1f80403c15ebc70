// Rates are over this run alone: what an earlier run committed counts as done but took no time here.
// The closing table follows the custom of simulation codes: a line a phase, least, mean and largest over the ranks.
#include "magister/run/progress.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/run/run_log.h"

namespace magister {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLiveInterval{500};
constexpr std::chrono::seconds kPlainInterval{30};

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

double rate(std::uint64_t amount, double seconds) { return seconds > 0 ? static_cast<double>(amount) / seconds : 0; }

// By the texts that this rank has written, if all units have as many as those begun and all groups are as fast.
std::string time_left(const InFlight& in_flight, std::uint64_t units, double seconds) {
  if (in_flight.texts_done == 0 || in_flight.units_begun == 0) return "unknown";
  const double a_unit = static_cast<double>(in_flight.texts_begun) / static_cast<double>(in_flight.units_begun);
  const double all = a_unit * static_cast<double>(units) / static_cast<double>(in_flight.groups),
               done = static_cast<double>(in_flight.texts_done);
  return format_duration(seconds * std::max(all - done, 0.0) / done);
}

}  // namespace

Progress::Progress(std::string task, Total total, Total before, RunLog& log, bool speaks, bool live)
    : task_(std::move(task)),
      total_(total),
      before_(before),
      log_(log),
      speaks_(speaks),
      live_(live),
      begin_(Clock::now()),
      last_line_(begin_) {}

Progress::~Progress() { end(); }

std::string Progress::line(Total done, double seconds_since_start, const InFlight& in_flight) const {
  const std::uint64_t tokens_here = done.tokens - std::min(done.tokens, before_.tokens);
  const std::uint64_t tokens_left = total_.tokens - std::min(total_.tokens, done.tokens);
  const bool none_committed = tokens_here == 0 && in_flight.tokens > 0;
  const double tokens_per_second = rate(none_committed ? in_flight.tokens : tokens_here, seconds_since_start);
  const double percent =
      total_.units == 0 ? 100.0 : 100.0 * static_cast<double>(done.units) / static_cast<double>(total_.units);
  const std::string texts =
      none_committed ? fmt::format(", {} of {} texts in flight written", in_flight.texts_done, in_flight.texts_begun)
                     : "";
  const std::string eta =
      none_committed     ? time_left(in_flight, total_.units - std::min(total_.units, done.units), seconds_since_start)
      : tokens_left == 0 ? format_duration(0)
      : tokens_per_second > 0.0 ? format_duration(static_cast<double>(tokens_left) / tokens_per_second)
                                : "unknown";
  return fmt::format("{}: {}/{} units ({:.1f} %){}, {:.0f} tokens/s, ETA {}", task_, done.units, total_.units, percent,
                     texts, tokens_per_second, eta);
}

void Progress::update(Total done, const InFlight& in_flight) {
  if (!speaks_) return;
  const Clock::time_point now = Clock::now();
  const auto since_last = now - last_line_;
  if (live_ ? since_last < kLiveInterval : since_last < kPlainInterval) return;
  last_line_ = now;
  const std::string text = line(done, seconds_between(begin_, now), in_flight);
  if (live_) {
    show_live_line(text);
    return;
  }
  log_info("{}", text);
  log_.event("progress", {{"task", task_},
                          {"units_done", done.units},
                          {"units", total_.units},
                          {"tokens_done", done.tokens},
                          {"tokens", total_.tokens},
                          {"tokens_per_second",
                           rate(done.tokens - std::min(done.tokens, before_.tokens), seconds_between(begin_, now))}});
}

void Progress::end() {
  if (speaks_ && live_) show_live_line("");
}

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
    : times_(times), phase_(std::move(phase)), begin_(Clock::now()) {}

PhaseTimes::Span::~Span() { times_.add(phase_, seconds_between(begin_, Clock::now())); }

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
      double seconds = 0;
      std::from_chars(entry.data(), entry.data() + space, seconds);
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

std::string phase_table(const std::vector<PhaseRow>& rows, std::uint64_t tokens, double wall_seconds) {
  std::size_t width = 5;
  for (const PhaseRow& row : rows) width = std::max(width, row.phase.size());
  std::string table =
      fmt::format("{:<{}}  {:>10} {:>10} {:>10}   seconds over the ranks\n", "phase", width, "min", "mean", "max");
  for (const PhaseRow& row : rows) {
    table += fmt::format("{:<{}}  {:>10.3f} {:>10.3f} {:>10.3f}\n", row.phase, width, row.min, row.mean, row.max);
  }
  table += fmt::format("{} tokens in {:.2f} s: {:.1f} tokens/s; compute imbalance {:.1f} %", tokens, wall_seconds,
                       rate(tokens, wall_seconds), 100 * imbalance(rows));
  return table;
}

void report_phases(const Communicator& world, const PhaseTimes& times, const std::string& task, std::uint64_t tokens,
                   double wall_seconds, RunLog& log) {
  const std::vector<PhaseRow> rows = gather_phases(world, times);
  if (world.rank() != 0) return;
  log_info("{}: time by phase\n{}", task, phase_table(rows, tokens, wall_seconds));
  nlohmann::ordered_json phases = nlohmann::ordered_json::array();
  for (const PhaseRow& row : rows) {
    phases.push_back({{"phase", row.phase}, {"min", row.min}, {"mean", row.mean}, {"max", row.max}});
  }
  log.event("phases", {{"task", task},
                       {"ranks", world.size()},
                       {"tokens", tokens},
                       {"wall_seconds", wall_seconds},
                       {"tokens_per_second", rate(tokens, wall_seconds)},
                       {"imbalance", imbalance(rows)},
                       {"phases", phases}});
}

std::string format_duration(double seconds) {
  if (!(seconds < 1e9)) return "unknown";
  const auto whole = static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds)));
  return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1023.95 && unit < 5; ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace magister
