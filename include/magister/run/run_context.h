// RunContext: what a task may use of the run that it belongs to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "magister/experiment/config.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"
#include "magister/runtime/stop.h"

namespace magister {

class Monitor;
class RunLog;
class Task;
class WeightStore;

// The share of its host that a rank may use while other parts of the job compute on the same host.
struct PartOfJob {
  HostPlace place;         // in the whole job
  int most_threads = 0;    // upper limit for each shard
  int shards_on_host = 0;  // of all parts, because they share its memory
  int rank = 0;            // in the whole job
};

// Equal on all ranks, except `world` and `part`.
struct RunContext {
  const Communicator& world;
  const ExperimentConfig& experiment;
  std::string results_path;   // runs/<name>/<task name>.h5
  std::string identity_yaml;  // for the results file: resolved, only this task, without the keys of outside_identity()
  bool fresh = false;         // --fresh: put an earlier result aside
  const StopSign& stop;
  RunLog& log;
  std::vector<const Task*> earlier_tasks{};  // in this experiment, in order
  // The state of their results. kOnDisk (`plan`): those that exist on disk can be opened. kAwaited: none can be opened
  // yet, because a run opens every task before the first one computes, and an earlier task may make its results anew.
  // kMade: all can be opened.
  enum class Earlier { kOnDisk, kAwaited, kMade } earlier = Earlier::kOnDisk;
  std::optional<PartOfJob> part{};  // set if `world` is not the whole job
  WeightStore* weights = nullptr;   // of this process; null: every task reads its model's file itself
  Monitor* monitor = nullptr;       // of this process; null: nobody watches
  bool held = false;                // rank 0 of the job holds the results' lock while the task runs
  // Writes identity_yaml again when the lengths are known that the config leaves to the models. Null: it does not
  // change.
  std::function<void(RunContext&)> resolve{};
  StopPoll stop_poll() const {
    return [sign = &stop] { return sign->raised(); };
  }
};

}  // namespace magister
