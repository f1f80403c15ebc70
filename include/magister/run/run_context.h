// What a task may use of the run it is part of.
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

class RunLog;
class Task;
class WeightStore;

// What a rank may take of its host while other parts of the job compute there, too.
struct PartOfJob {
  HostPlace place;         // in the whole job
  int most_threads = 0;    // of a shard
  int shards_on_host = 0;  // of all parts, which share its memory
  int rank = 0;            // in the whole job
};

// Equal on all ranks but for `world` and `part`.
struct RunContext {
  const Communicator& world;
  const ExperimentConfig& experiment;
  std::string results_path;     // runs/<name>/<task name>.h5
  std::string experiment_yaml;  // for the results file: as resolved, this task alone, without `output` and `run`
  bool fresh = false;           // --fresh: put an earlier result aside
  const StopSign& stop;
  RunLog& log;
  std::vector<const Task*> earlier_tasks{};  // of this experiment, in order
  // Whether their results can be opened: as they are on disk (`plan`); not yet, because a run opens every task before the first one computes
  // and may make them anew (kAwaited); or they are made.
  enum class Earlier { kOnDisk, kAwaited, kMade } earlier = Earlier::kOnDisk;
  std::optional<PartOfJob> part{};  // `world` is not the whole job
  WeightStore* weights = nullptr;   // of this process; null: every task reads its model's file
  bool held = false;                // rank 0 of the job holds the results' lock, as long as the task runs
  // Writes experiment_yaml again when the lengths are known that the config leaves to the models; null: it stays.
  std::function<void(RunContext&)> resolve{};
  StopPoll stop_poll() const {
    return [sign = &stop] { return sign->raised(); };
  }
};

}  // namespace magister
