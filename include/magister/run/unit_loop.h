// What every task does around its units: tickets, progress, watchdog, the wait for the others and the report.
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
  nlohmann::ordered_json fields;  // more of the event "start"
  bool groups_divide_units;       // false: all groups work at every unit, as in a training
};

// Of work that all groups do together, as a training: its units are committed at the end alone, so the work itself tells what is done.
struct StepsDone {
  std::uint64_t done = 0, all = 0;  // of this run and those before it
  std::uint64_t tokens = 0;         // read by all ranks in this run
};

// What the work may use. report_progress() is called by a thread that claims units.
struct UnitWork {
  UnitTickets& tickets;
  Watchdog& watchdog;  // of the rank's first group
  const std::function<void()>& report_progress;
  const std::function<void(const InFlight&)>& report_in_flight;  // of the rank's first group, between passes
  std::deque<Watchdog>& watchdogs;                               // by group of this rank
  std::mutex& one_group;  // held while a group uses what the rank has once: a data set, the rewards
  StepsDone& steps;

  // A sign of life in a phase in which ranks wait for each other, as in a training: no rank counts as stuck while any rank reports progress.
  // From any thread.
  void live_together(const std::string& phase, std::int64_t number = -1) const;
};

// Runs `work` on every rank until it returns or throws Error(kStopped), then waits for all. kDone: every unit is committed;
// kStopped otherwise. Collective over context.world.
ExitCode run_unit_loop(UnitLoop loop, const std::function<void(const UnitWork&)>& work);

}  // namespace magister
