// Measures the seconds of a run by phase, and makes the closing table over the ranks, as simulation codes print it: one
// line for each phase, with minimum, mean and maximum.
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

// The seconds of this rank by phase, in the order of first use. Thread-safe.
class PhaseTimes {
 public:
  void add(const std::string& phase, double seconds);

  // Adds the time from its construction to its destruction.
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

// Returns the rows of the closing table, equal on every rank. Collective over world.
std::vector<PhaseRow> gather_phases(const Communicator& world, const PhaseTimes& times);
// Returns the closing table. tokens: computed in this run by all ranks in wall_seconds; written: generated tokens. The
// last line has the imbalance: max / mean - 1 of the phases named "compute...", the extra time of the slowest rank over
// the mean.
std::string phase_table(const std::vector<PhaseRow>& rows, std::uint64_t tokens, double wall_seconds,
                        std::uint64_t written = 0);
// The totals of one unit loop in this run.
struct Computed {
  std::uint64_t tokens = 0, written = 0;  // of all groups
  double wall_seconds = 0;
  std::vector<std::uint64_t> leaders,
      tokens_by_group;  // [groups]: world rank of each group's leader, tokens of its units; on rank 0
};

// Calls gather_phases; rank 0 then logs the table and writes the event "phases". Collective over world.
void report_phases(const Communicator& world, const PhaseTimes& times, const std::string& task,
                   const Computed& computed, RunLog& log);

}  // namespace magister
