// Progress of a run for people, and its timing by phase. On a terminal one live line with a bar, replaced twice a second; else a full line
// every 30 s (5 s when verbose); both "done/total units, tokens/s, elapsed, ETA, slowest rank". At the end a table by phase over the ranks.
// The units of a task that writes texts hold the tokens of the prompts; generated tokens are reported separately, and first.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/parallel/communicator.h"

namespace magister {

class RunLog;

// What this rank has done of units that are not committed yet, where a unit may take long: a record of many texts.
struct InFlight {
  std::uint64_t units_begun = 0, texts_begun = 0, texts_done = 0;  // in this run
  std::uint64_t tokens = 0;                                        // computed in this run: of prompts and of texts
  std::uint64_t groups = 1;                                        // that share the units
};

// The rank whose group has done the fewest tokens of this run.
struct SlowestRank {
  int rank = 0;
  std::uint64_t tokens = 0;
  // Of groups of several sizes, whose units are their own: how much longer those that end last need than if all shared what is left.
  double longer = 1;
};

class Progress {
 public:
  struct Total {
    std::uint64_t units = 0;
    std::uint64_t tokens = 0;
    std::uint64_t written = 0;  // tokens of texts in this run, of units that are not committed yet, too
  };
  // `before`: what an earlier run committed; it counts as done and not into tokens/s. is_root: this rank prints, which
  // world rank 0 alone does. live: replace one line on a terminal (stderr_is_terminal()).
  Progress(std::string task, Total total, Total before, RunLog& log, bool is_root, bool live);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Cheap: prints only when it is due. done counts `before` too.
  void update(Total done, const InFlight& in_flight = {}, std::optional<SlowestRank> slowest = {});
  // Whether update() would print now, so that callers skip collecting what is expensive.
  bool is_due() const;
  // Ends the live line.
  void end();

  // "teacher: 120/400 units (30.0 %), 1234 tokens/s, elapsed 0:00:52, ETA 0:02:05, slowest rank 3: 280 tokens/s": the line of update() at
  // this time, for tests. live: "teacher [######--------------] 120/400 ...".
  // As long as no unit is committed in this run, the rate and the time left are those of the texts in flight.
  // For a task that writes texts: "1234 tokens/s written, 56 tokens/s of prompts".
  std::string line(Total done, double seconds_since_start, const InFlight& in_flight = {},
                   std::optional<SlowestRank> slowest = {}) const;

 private:
  std::string task_;
  Total total_, before_;
  RunLog& log_;
  bool is_root_, live_;
  std::chrono::steady_clock::time_point begin_, last_line_, last_event_;
};

// Seconds by phase of this rank, in the order of the first use. Thread-safe.
class PhaseTimes {
 public:
  void add(const std::string& phase, double seconds);

  // From construction to destruction.
  class Span {
   public:
    Span(PhaseTimes& times, std::string phase);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PhaseTimes& times_;
    std::string phase_;
    std::chrono::steady_clock::time_point begin_;
  };

  std::vector<std::pair<std::string, double>> seconds() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, double>> seconds_;
};

struct PhaseRow {
  std::string phase;
  double min = 0, mean = 0, max = 0;  // seconds over the ranks; a rank without the phase counts 0
};

// What the closing table is made of; equal on every rank. Collective over world.
std::vector<PhaseRow> gather_phases(const Communicator& world, const PhaseTimes& times);
// The closing table and the event "phases". `tokens` computed in this run over the whole world in wall_seconds; `written`: tokens of texts.
// Imbalance: how much longer the slowest rank computed than the mean (max / mean - 1 of the phases named "compute...").
std::string phase_table(const std::vector<PhaseRow>& rows, std::uint64_t tokens, double wall_seconds,
                        std::uint64_t written = 0);
// What a whole loop computed in this run.
struct Computed {
  std::uint64_t tokens = 0, written = 0;  // of all groups
  double wall_seconds = 0;
  std::vector<std::uint64_t> leaders,
      tokens_by_group;  // [groups]: world rank of each group's leader, tokens of its units; on rank 0
};

// gather_phases, then on rank 0 log_info the table and write the event. Collective over world.
void report_phases(const Communicator& world, const PhaseTimes& times, const std::string& task,
                   const Computed& computed, RunLog& log);

}  // namespace magister
