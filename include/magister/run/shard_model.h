// ShardModel: what the worker of one shard has, whatever the task: a model instance, the clock and the watchdog of its
// rank, and on the leader the writer.
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

// What the loop of a task is given. References outlive the loop.
struct ModelRun {
  const PlanNumbers& plan;
  const GpuGroup& group;
  ResultsFile& file;
  const UnitWork& work;
  const OpenModel& model;
  StopPoll stop_wanted;                 // signal or wall time: asked often
  const std::optional<LossPlan>& loss;  // of quantisation, measured before the work
  PhaseTimes& times;                    // of this rank's first shard
  PassShape pass{};
  MemoryParts memory{};  // of a device: for the check of a GPU's before the weights come
  std::int64_t cache_pages = 0;
};

// The loop of a task without a model: every rank claims units for itself, and columns_of makes what is written of each. Local but for
// the claims.
void run_units_of_one_thread(const ModelRun& run,
                             const std::function<std::vector<ColumnBytes>(const Unit&)>& columns_of);

class ShardModel : public ShardWorker {
 public:
  // Loads the model, and before that measures the loss of quantisation where the config asks for it. The first local shard of each group feeds
  // the group's watchdog; the first shard of the rank also reports times and progress. Collective over the group.
  explicit ShardModel(ShardContext shard);

 protected:
  // A sign of life: the watchdog's clock restarts, and ranks that wait see it.
  void watch(const char* phase, std::int64_t unit = -1) const;
  // Tells the watchdog that this shard waits for others, which show signs of life of their own. Local.
  void wait_for_others(const char* phase) const;
  // A barrier after work that the leader alone does, however long it takes. Collective over the group.
  void wait_for_leader(const char* phase) const;
  // Whether the job should stop, the same on every shard. Collective over the group.
  bool stop_agreed() const { return instance_.stop_agreed(); }
  // The group's next units, which go through the model together: one, and as many full ones more as hold no more than `tokens` with it
  // (SequencePasses::tokens_together); in groups of several shards one. The same on every shard; empty when none is left or the job is asked
  // to stop. Collective over the group.
  std::vector<std::uint64_t> next_units(std::uint64_t tokens);
  // Whether the group may claim beside `held` units that it works on: not where these are its equal part of what is left. The same on every
  // shard. Collective over the group.
  bool may_hold_more(std::uint64_t held) const;
  // Waits until everything is committed. Local.
  void drain();

  const ModelRun& base_;

 private:
  ShardPlace place_;

 protected:
  bool is_first_in_rank_;  // the rank's first shard: it reports for the rank

 private:
  Transformer& load();

  PhaseTimes own_times_;  // of the other shards: not reported
  ModelInstance instance_;

 protected:
  PhaseTimes& times_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  Transformer& model_;
  std::optional<UnitWriter> writer_;  // on the group's leader
};

}  // namespace magister
