// ShardWorker: computes the units of a task on one shard. TaskJob::worker() makes one for every shard of a rank.
#pragma once

#include <memory>

#include "magister/parallel/process_group.h"
#include "magister/run/shard_threads.h"

namespace magister {

struct ModelRun;

// The inputs of a worker: the running task and its shard. run outlives the worker.
struct ShardContext {
  const ModelRun& run;
  std::unique_ptr<ProcessGroup> group;
  ShardPlace place;
};

class ShardWorker {
 public:
  virtual ~ShardWorker() = default;
  ShardWorker(const ShardWorker&) = delete;
  ShardWorker& operator=(const ShardWorker&) = delete;

  // Computes units until none is left or the job stops; committed units stay. Collective over the group.
  virtual void run_units() = 0;

 protected:
  ShardWorker() = default;
};

}  // namespace magister
