// ShardModel: the base of every worker that has a model. It holds a model instance, the phase times and the watchdog of
// its rank, and on the leader the writer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "magister/model/transformer.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/phase_times.h"
#include "magister/run/quantization_loss.h"
#include "magister/run/sample_plan.h"
#include "magister/run/shard_worker.h"
#include "magister/run/unit_loop.h"
#include "magister/run/unit_writer.h"
#include "magister/runtime/model_instance.h"
#include "magister/runtime/open_model.h"

namespace magister {

// The inputs of a task's loop. The references outlive the loop.
struct ModelRun {
  const PlanNumbers& plan;
  const GpuGroup& group;
  ResultsFile& file;
  const UnitWork& work;
  const OpenModel& model;
  StopPoll stop_wanted;                 // because of a signal or the wall time; called often
  const std::optional<LossPlan>& loss;  // of quantisation; measured before the work
  PhaseTimes& times;                    // of this rank's first shard
  PassShape pass{};
  MemoryParts memory{};  // of a device: checked on a GPU before the weights are loaded
  std::int64_t cache_pages = 0;
};

// The loop of a task without a model: every rank claims units for itself, and columns_of() makes the columns of each.
// Local, except the claims.
void run_units_of_one_thread(const ModelRun& run,
                             const std::function<std::vector<ColumnBytes>(const Unit&)>& columns_of);

class ShardModel : public ShardWorker {
 public:
  // Loads the model; before that, it measures the loss of quantisation if the config asks for it. The first local shard
  // of each group feeds the group's watchdog; the first shard of the rank also reports times and progress. Collective
  // over the group.
  explicit ShardModel(ShardContext shard);

 protected:
  // Reports that this shard makes progress: restarts the watchdog's deadline and updates the heartbeat that waiting
  // ranks read.
  void watch(const char* phase, std::int64_t unit = -1) const;
  // Tells the watchdog that this shard waits for others, which report progress themselves. Local.
  void wait_for_others(const char* phase) const;
  // A barrier after work that only the leader does, however long it takes. Collective over the group.
  void wait_for_leader(const char* phase) const;
  // Index of this shard's group in the job.
  int group_in_job() const { return base_.group.group_index() + place_.group; }
  // True if the job should stop, the same on every shard. Collective over the group.
  bool stop_agreed() const { return instance_.stop_agreed(); }
  // Claims the group's next units, which go through the model together: one, and further ones as long as one more full
  // unit keeps the sum within `tokens` (SequencePasses::tokens_together). Groups of several shards claim only one. The
  // same on every shard; empty if none is left or the job is asked to stop. Collective over the group.
  std::vector<std::uint64_t> next_units(std::uint64_t tokens);
  // True if the group may claim one more unit in addition to the `held` units that it works on: these are fewer than
  // its equal part of the units that are left. The same on every shard. Collective over the group.
  bool may_hold_more(std::uint64_t held) const;
  // Waits until all units of this shard are committed, then closes its process group. Collective over the group.
  void drain();

  const ModelRun& base_;

 private:
  ShardPlace place_;

 protected:
  bool is_first_in_rank_;  // the rank's first shard: it reports for the rank

 private:
  Transformer& load();

  PhaseTimes own_times_;  // used by the other shards; not reported
  ModelInstance instance_;

 protected:
  PhaseTimes& times_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  Transformer& model_;
  std::optional<UnitWriter> writer_;  // on the group's leader
};

}  // namespace magister
