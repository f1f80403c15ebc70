// See progress.h. Rates cover this run alone: what an earlier run committed counts as done but took no time here.
#include "magister/run/progress.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLiveInterval{500};
constexpr std::chrono::milliseconds kPlainInterval{30'000}, kVerboseInterval{5'000};
constexpr std::uint64_t kBarWidth = 20;

// "[######--------------]"
std::string bar(std::uint64_t done, std::uint64_t total) {
  const std::uint64_t filled = total == 0 ? kBarWidth : std::min(done, total) * kBarWidth / total;
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '-') + "]";
}

double rate(std::uint64_t amount, double seconds) { return seconds > 0 ? static_cast<double>(amount) / seconds : 0; }

std::uint64_t left_of(std::uint64_t total, std::uint64_t done) { return total - std::min(total, done); }

// Estimated from the texts that this rank has written, as if all units had as many texts as those begun and all groups
// were equally fast.
std::optional<double> seconds_left_of_texts(const InFlight& in_flight, std::uint64_t units, double seconds) {
  if (in_flight.texts_done == 0 || in_flight.units_begun == 0) return std::nullopt;
  const double a_unit = static_cast<double>(in_flight.texts_begun) / static_cast<double>(in_flight.units_begun);
  const double all = a_unit * static_cast<double>(units) / static_cast<double>(in_flight.groups),
               done = static_cast<double>(in_flight.texts_done);
  return seconds * std::max(all - done, 0.0) / done;
}

// If a task writes texts, the tokens of its units are those of the prompts.
const char* kind_of_tokens(bool writes) { return writes ? " of prompts" : ""; }

std::string describe_rate(double read, double written) {
  if (written == 0) return fmt::format("{:.0f} tokens/s", read);
  const std::string prompts = read > 0 ? fmt::format(", {:.0f} tokens/s{}", read, kind_of_tokens(true)) : "";
  return fmt::format("{:.0f} tokens/s written{}", written, prompts);
}

class LineReader final : public ProgressReader {
 public:
  explicit LineReader(bool live)
      : ProgressReader(live                                 ? kLiveInterval
                       : verbosity() == Verbosity::kVerbose ? kVerboseInterval
                                                            : kPlainInterval),
        live_(live) {}
  void show(const ProgressMetrics& now) override {
    if (live_) return show_live_line(progress_line(now, true));
    log_info("{}", progress_line(now, false));
  }
  void end() override {
    if (live_) show_live_line("");
  }

 private:
  bool live_;
};

class EventReader final : public ProgressReader {
 public:
  explicit EventReader(RunLog& log)
      : ProgressReader(verbosity() == Verbosity::kVerbose ? kVerboseInterval : kPlainInterval), log_(log) {}
  void show(const ProgressMetrics& now) override { log_.event("progress", named_metrics(now)); }

 private:
  RunLog& log_;
};

}  // namespace

nlohmann::ordered_json named_metrics(const ProgressMetrics& now) {
  nlohmann::ordered_json fields = {{"task", now.task},     {"units_done", now.units_done},
                                   {"units", now.units},   {"tokens_done", now.tokens_done},
                                   {"tokens", now.tokens}, {"tokens_per_second", now.tokens_per_second}};
  if (now.written_tokens > 0) {
    fields.update(
        {{"written_tokens", now.written_tokens}, {"written_tokens_per_second", now.written_tokens_per_second}});
  }
  if (now.slowest) {
    fields.update({{"slowest_rank", now.slowest->rank}, {"slowest_rank_tokens", now.slowest->tokens}});
  }
  return fields;
}

std::string progress_line(const ProgressMetrics& now, bool live) {
  const bool writes = now.written_tokens > 0;
  const std::string texts = now.in_flight ? fmt::format(", {} of {} texts in flight written", now.in_flight->texts_done,
                                                        now.in_flight->texts_begun)
                                          : "";
  // The tokens in flight are prompts and texts of this rank together; their rate is shown only while no token is
  // reported as written.
  const double in_flight_rate = now.in_flight && !writes ? rate(now.in_flight->tokens, now.elapsed_seconds) : 0;
  const double read = now.in_flight ? in_flight_rate : now.tokens_per_second;
  const std::string slowest = !now.slowest
                                  ? ""
                                  : fmt::format(", slowest rank {}: {:.0f} tokens/s{}", now.slowest->rank,
                                                rate(now.slowest->tokens, now.elapsed_seconds), kind_of_tokens(writes));
  return fmt::format("{}{} {}/{} units ({:.1f} %){}, {}, elapsed {}, ETA {}{}", now.task,
                     live ? " " + bar(now.units_done, now.units) : ":", now.units_done, now.units, now.percent(), texts,
                     describe_rate(read, now.written_tokens_per_second), format_duration(now.elapsed_seconds),
                     now.seconds_left ? format_duration(*now.seconds_left) : "unknown", slowest);
}

std::vector<std::unique_ptr<ProgressReader>> default_progress_readers(RunLog& log, bool live) {
  std::vector<std::unique_ptr<ProgressReader>> readers;
  readers.push_back(std::make_unique<LineReader>(live));
  readers.push_back(std::make_unique<EventReader>(log));
  return readers;
}

Progress::Progress(std::string task, Total total, Total before, std::vector<std::unique_ptr<ProgressReader>> readers)
    : task_(std::move(task)), total_(total), before_(before), begin_(Clock::now()) {
  for (auto& reader : readers) readers_.push_back({std::move(reader), begin_});
}

Progress::~Progress() { end(); }

ProgressMetrics Progress::measure(Total done, double seconds_since_start, const InFlight& in_flight,
                                  std::optional<SlowestRank> slowest) const {
  const std::uint64_t tokens_here = left_of(done.tokens, before_.tokens);
  const std::uint64_t tokens_left = left_of(total_.tokens, done.tokens);
  ProgressMetrics now{.task = task_,
                      .units = total_.units,
                      .units_done = done.units,
                      .tokens = total_.tokens,
                      .tokens_done = done.tokens,
                      .written_tokens = done.written,
                      .elapsed_seconds = seconds_since_start,
                      .tokens_per_second = rate(tokens_here, seconds_since_start),
                      .written_tokens_per_second = rate(done.written, seconds_since_start),
                      .seconds_left = std::nullopt,
                      .slowest = slowest,
                      .in_flight = std::nullopt};
  if (tokens_here == 0 && in_flight.tokens > 0) {
    now.in_flight = in_flight;
    now.seconds_left = seconds_left_of_texts(in_flight, left_of(total_.units, done.units), seconds_since_start);
  } else if (tokens_left == 0) {
    now.seconds_left = 0;
  } else if (now.tokens_per_second > 0) {
    now.seconds_left = (slowest ? slowest->longer : 1) * static_cast<double>(tokens_left) / now.tokens_per_second;
  }
  return now;
}

bool Progress::is_due() const {
  const Clock::time_point now = Clock::now();
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const Reader& one) { return now - one.last >= one.reader->interval(); });
}

void Progress::update(Total done, const InFlight& in_flight, std::optional<SlowestRank> slowest) {
  if (!is_due()) return;
  const Clock::time_point now = Clock::now();
  const ProgressMetrics metrics =
      measure(done, std::chrono::duration<double>(now - begin_).count(), in_flight, slowest);
  for (Reader& one : readers_) {
    if (now - one.last < one.reader->interval()) continue;
    one.last = now;
    one.reader->show(metrics);
  }
}

void Progress::end() {
  for (Reader& one : readers_) one.reader->end();
}

}  // namespace magister
