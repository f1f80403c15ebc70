// The frame of every task's work on units: tickets, progress, watchdog, the wait for the other ranks and the report.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/core/error.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/unit_tickets.h"
#include "magister/parallel/watchdog.h"
#include "magister/run/phase_times.h"
#include "magister/run/progress.h"
#include "magister/run/run_context.h"

namespace magister {

struct UnitLoop {
  RunContext& context;
  const GpuGroup& group;
  ResultsFile& file;
  const std::string& task;  // its name
  PhaseTimes& times;
  nlohmann::ordered_json fields;  // more fields of the event "start"
  bool groups_divide_units;       // false: all groups work on every unit, as in a training
};

// The steps of work that all groups do together, such as a training. Its units are committed only at the end, so the
// work itself counts what is done.
struct StepsDone {
  std::uint64_t done = 0, all = 0;  // in this run and earlier ones
  std::uint64_t tokens = 0;         // read by all ranks in this run
};

// The objects that the work may use. report_progress() is called on a thread that claims units.
struct UnitWork {
  UnitTickets& tickets;
  Watchdog& watchdog;  // of the rank's first group
  const std::function<void()>& report_progress;
  const std::function<void(const InFlight&)>& report_in_flight;  // called by the rank's first group, between passes
  std::deque<Watchdog>& watchdogs;                               // by index of the group in this rank
  std::mutex& one_group;  // held while a group uses an object that the rank has only once: a data set, the rewards
  StepsDone& steps;

  // Reports progress in a phase in which ranks wait for each other, as in a training: no rank counts as stuck while any
  // rank reports progress. May be called from any thread.
  void live_together(const std::string& phase, std::int64_t number = -1) const;
};

// Runs `work` on every rank until it returns or throws Error(kStopped), then waits for all ranks. kDone: every unit is
// committed; kStopped otherwise. Collective over context.world.
ExitCode run_unit_loop(UnitLoop loop, const std::function<void(const UnitWork&)>& work);

}  // namespace magister
