// Seconds of a run by phase, and the table over the ranks that closes it, as simulation codes print it: a line a phase; least, mean and
// largest.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "magister/parallel/communicator.h"

namespace magister {

class RunLog;

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

// The rows of the closing table; equal on every rank. Collective over world.
std::vector<PhaseRow> gather_phases(const Communicator& world, const PhaseTimes& times);
// The closing table and the event "phases". `tokens` computed in this run over the whole world in wall_seconds; `written`: tokens of texts.
// Imbalance: how much longer the slowest rank computed than the mean (max / mean - 1 of the phases named "compute...").
std::string phase_table(const std::vector<PhaseRow>& rows, std::uint64_t tokens, double wall_seconds,
                        std::uint64_t written = 0);
// The sums of a whole loop in this run.
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
