// Progress of a run: Progress measures it, and readers show it. There are two readers here. One prints for people: on a
// terminal one live line with a bar, otherwise a line every 30 s (5 s when verbose). The other writes the event
// "progress" of run.jsonl. A further reader (a page, an endpoint for Prometheus) is one more ProgressReader over the
// same named metrics.
// For a task that writes texts, the tokens of units are those of the prompts; generated tokens are reported separately,
// and first.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace magister {

class RunLog;

// The work of this rank on units that are not committed yet. It matters if a unit takes long, such as a record with
// many texts.
struct InFlight {
  std::uint64_t units_begun = 0, texts_begun = 0, texts_done = 0;  // in this run
  std::uint64_t tokens = 0;                                        // computed in this run, of prompts and of texts
  std::uint64_t groups = 1;                                        // that share the units
};

// The rank whose group has computed the fewest tokens per device in this run.
struct SlowestRank {
  int rank = 0;
  std::uint64_t tokens = 0;
  // If groups have several sizes, each size has its own units. This is the time that the slowest size still needs,
  // divided by the time that all groups would need if they shared the units that are left.
  double longer = 1;
};

// Progress at one moment. Rates cover this run alone: what an earlier run committed counts as done, but took no time
// here.
struct ProgressMetrics {
  std::string task;
  std::uint64_t units = 0, units_done = 0, tokens = 0, tokens_done = 0;
  std::uint64_t written_tokens = 0;  // generated in this run, also in units that are not committed yet
  double elapsed_seconds = 0;        // of this run
  double tokens_per_second = 0, written_tokens_per_second = 0;
  std::optional<double> seconds_left;  // none: not known yet
  std::optional<SlowestRank> slowest;
  std::optional<InFlight> in_flight;  // set until the first unit of this run is committed

  double percent() const {
    return units == 0 ? 100.0 : 100.0 * static_cast<double>(units_done) / static_cast<double>(units);
  }
};

// Returns name -> value with the names of run.jsonl, which every reader uses.
nlohmann::ordered_json named_metrics(const ProgressMetrics& now);

// "teacher: 120/400 units (30.0 %), 1234 tokens/s, elapsed 0:00:52, ETA 0:02:05, slowest rank 3: 280 tokens/s".
// live: "teacher [######--------------] 120/400 ...". For a task that writes texts: "1234 tokens/s written, 56 tokens/s
// of prompts". Until a unit is committed in this run, the rate and the time left are those of the texts in flight.
std::string progress_line(const ProgressMetrics& now, bool live);

// Shows progress somewhere, at its own interval.
class ProgressReader {
 public:
  explicit ProgressReader(std::chrono::milliseconds interval) : interval_(interval) {}
  virtual ~ProgressReader() = default;
  ProgressReader(const ProgressReader&) = delete;
  ProgressReader& operator=(const ProgressReader&) = delete;

  std::chrono::milliseconds interval() const { return interval_; }
  virtual void show(const ProgressMetrics& now) = 0;
  virtual void end() {}  // the run is over

 private:
  std::chrono::milliseconds interval_;
};

// Makes the two readers of every run. live: replace one line on a terminal (stderr_is_terminal()). Keeps a reference to
// log.
std::vector<std::unique_ptr<ProgressReader>> default_progress_readers(RunLog& log, bool live);

class Progress {
 public:
  struct Total {
    std::uint64_t units = 0;
    std::uint64_t tokens = 0;
    std::uint64_t written = 0;  // tokens generated in this run, also in units that are not committed yet
  };
  // `before`: what an earlier run committed; it counts as done, but not in tokens/s. No readers: this rank shows
  // nothing; only world rank 0 has readers.
  Progress(std::string task, Total total, Total before, std::vector<std::unique_ptr<ProgressReader>> readers);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Shows what is due; cheap otherwise. done includes `before`.
  void update(Total done, const InFlight& in_flight = {}, std::optional<SlowestRank> slowest = {});
  // True when update() would show something now, so that callers skip collecting what is expensive.
  bool is_due() const;
  // Ends what the readers show.
  void end();

  ProgressMetrics measure(Total done, double seconds_since_start, const InFlight& in_flight = {},
                          std::optional<SlowestRank> slowest = {}) const;

 private:
  struct Reader {
    std::unique_ptr<ProgressReader> reader;
    std::chrono::steady_clock::time_point last;
  };
  std::string task_;
  Total total_, before_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<Reader> readers_;
};

}  // namespace magister
