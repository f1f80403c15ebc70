// Rates are over this run alone: what an earlier run committed counts as done but took no time here.
// The closing table follows the custom of simulation codes: a line a phase, least, mean and largest over the ranks.
#include "magister/run/progress.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/run/run_log.h"

namespace magister {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLiveInterval{500};
constexpr std::chrono::seconds kPlainInterval{30}, kVerboseInterval{5};
constexpr std::uint64_t kBarWidth = 20;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// "[######--------------]"
std::string bar(std::uint64_t done, std::uint64_t total) {
  const std::uint64_t filled = total == 0 ? kBarWidth : std::min(done, total) * kBarWidth / total;
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '-') + "]";
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

// Of a task that writes texts the tokens of its units are its prompts'.
const char* what_is_read(bool writes) { return writes ? " of prompts" : ""; }

std::string describe_rate(double read, double written) {
  if (written == 0) return fmt::format("{:.0f} tokens/s", read);
  const std::string prompts = read > 0 ? fmt::format(", {:.0f} tokens/s{}", read, what_is_read(true)) : "";
  return fmt::format("{:.0f} tokens/s written{}", written, prompts);
}

}  // namespace

Progress::Progress(std::string task, Total total, Total before, RunLog& log, bool is_root, bool live)
    : task_(std::move(task)),
      total_(total),
      before_(before),
      log_(log),
      is_root_(is_root),
      live_(live),
      begin_(Clock::now()),
      last_line_(begin_),
      last_event_(begin_) {}

Progress::~Progress() { end(); }

std::string Progress::line(Total done, double seconds_since_start, const InFlight& in_flight,
                           std::optional<SlowestRank> slowest) const {
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
      : tokens_per_second > 0.0
          ? format_duration((slowest ? slowest->longer : 1) * static_cast<double>(tokens_left) / tokens_per_second)
          : "unknown";
  const std::string last =
      !slowest ? ""
               : fmt::format(", slowest rank {}: {:.0f} tokens/s{}", slowest->rank,
                             rate(slowest->tokens, seconds_since_start), what_is_read(done.written > 0));
  // What is in flight is prompts and texts of this rank together: its own rate only while nobody has written anything.
  const double read = none_committed && done.written > 0 ? 0 : tokens_per_second;
  return fmt::format("{}{} {}/{} units ({:.1f} %){}, {}, elapsed {}, ETA {}{}", task_,
                     live_ ? " " + bar(done.units, total_.units) : ":", done.units, total_.units, percent, texts,
                     describe_rate(read, rate(done.written, seconds_since_start)), format_duration(seconds_since_start),
                     eta, last);
}

bool Progress::is_due() const {
  const auto since_last = Clock::now() - last_line_;
  if (live_) return is_root_ && since_last >= kLiveInterval;
  return is_root_ && since_last >= (verbosity() == Verbosity::kVerbose ? kVerboseInterval : kPlainInterval);
}

void Progress::update(Total done, const InFlight& in_flight, std::optional<SlowestRank> slowest) {
  if (!is_due()) return;
  const Clock::time_point now = Clock::now();
  last_line_ = now;
  const std::string text = line(done, seconds_between(begin_, now), in_flight, slowest);
  if (live_) {
    show_live_line(text);
    if (now - last_event_ < kPlainInterval) return;
  } else {
    log_info("{}", text);
  }
  last_event_ = now;
  nlohmann::ordered_json fields = {
      {"task", task_},
      {"units_done", done.units},
      {"units", total_.units},
      {"tokens_done", done.tokens},
      {"tokens", total_.tokens},
      {"tokens_per_second", rate(done.tokens - std::min(done.tokens, before_.tokens), seconds_between(begin_, now))}};
  if (done.written > 0) {
    fields.update({{"written_tokens", done.written},
                   {"written_tokens_per_second", rate(done.written, seconds_between(begin_, now))}});
  }
  if (slowest) fields.update({{"slowest_rank", slowest->rank}, {"slowest_rank_tokens", slowest->tokens}});
  log_.event("progress", fields);
}

void Progress::end() {
  if (is_root_ && live_) show_live_line("");
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
                         wall_seconds, rate(written, wall_seconds), tokens, rate(tokens, wall_seconds));
  } else if (tokens == 0) {  // rules and figures read none
    table += fmt::format("{:.2f} s", wall_seconds);
  } else {
    table += fmt::format("{} tokens in {:.2f} s: {:.1f} tokens/s", tokens, wall_seconds, rate(tokens, wall_seconds));
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
                                  {"tokens_per_second", rate(computed.tokens, computed.wall_seconds)}};
  if (computed.written > 0) {
    event["written_tokens"] = computed.written;
    event["written_tokens_per_second"] = rate(computed.written, computed.wall_seconds);
  }
  event.update({{"groups", groups}, {"imbalance", imbalance(rows)}, {"phases", phases}});
  log.event("phases", event);
}

}  // namespace magister
