// What one shard of a running task has, whatever the task: its process group, threads, model, and on the leader the writer.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "magister/model/transformer.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/open_model.h"
#include "magister/run/progress.h"
#include "magister/run/quantization_loss.h"
#include "magister/run/unit_loop.h"
#include "magister/run/unit_writer.h"

namespace magister {

// What every task's loop is given. All by reference but the function: they outlive the loop.
struct ModelRun {
  const GpuGroup& group;
  ResultsFile& file;
  const UnitWork& work;
  const OpenModel& model;
  StopPoll stop_wanted;                 // signal or wall time: asked often
  const std::optional<LossPlan>& loss;  // of quantisation, measured before the work
  PhaseTimes& times;                    // of this rank's first shard
  PassShape pass{};                     // for the check of a GPU's memory before the weights come
  std::int64_t cache_pages = 0;
};

class ShardModel {
 public:
  // Loads the weights, tests the fast paths, and measures the quantisation's loss where it is asked for. `first`: this shard
  // speaks for its rank (times, watchdog). run is kept by reference. Collective over the group.
  ShardModel(const ModelRun& run, std::unique_ptr<ProcessGroup> group, bool first);
  ShardModel(const ShardModel&) = delete;
  ShardModel& operator=(const ShardModel&) = delete;

 protected:
  // load(hook) on every shard. Throws Error(kStopped) on all of them when one was asked to stop meanwhile. Collective over the group.
  Transformer load_together(const char* phase, const std::function<Transformer(const LoadHook&)>& load) const;
  // A sign of life: the watchdog's clock restarts, and ranks that wait see it.
  void watch(const char* phase, std::int64_t unit = -1) const;
  // Whether the job should stop, the same on every shard. Collective over the group.
  bool stop_agreed() const;
  // Waits until everything is committed. Local.
  void drain();

  const ModelRun& base_;
  std::unique_ptr<ProcessGroup> group_;
  bool speaks_;
  PhaseTimes own_times_;  // of the other shards: nobody reads them
  PhaseTimes& times_;
  ThreadPool pool_;
  std::optional<Transformer> model_;
  std::optional<UnitWriter> writer_;  // on the group's leader
};

}  // namespace magister
