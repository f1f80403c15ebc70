// ModelInstance: one shard of a model that is loaded and can be run: process group, threads, weights. It knows no task,
// no results file and no units, so that code that serves or trains a model can use it, too.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/stop.h"

namespace magister {

class ModelInstance {
 public:
  struct Hooks {
    std::function<void(const char* phase)> heartbeat;  // reports progress to the watchdog, between two tensors
    StopPoll stop_wanted;
  };

  // Keeps a reference to source. Local.
  ModelInstance(const OpenModel& source, std::unique_ptr<ProcessGroup> group, int num_threads, Hooks hooks);
  ModelInstance(const ModelInstance&) = delete;
  ModelInstance& operator=(const ModelInstance&) = delete;
  ~ModelInstance() = default;

  // Loads the weights and, if self_test, tests the fast paths. Throws Error(kStopped) on every shard if one of them was
  // asked to stop meanwhile. Collective over the group.
  Transformer& load(bool self_test = true);
  // Loads the model without quantisation; the caller owns it. Throws as load() does. Collective over the group.
  Transformer load_unquantized();

  Transformer& model() { return *model_; }  // after load()
  ProcessGroup& group() { return *group_; }
  ThreadPool& pool() { return pool_; }
  const OpenModel& source() const { return source_; }
  // True if the job should stop, the same on every shard. Collective over the group.
  bool stop_agreed() const;
  // Reports progress to the watchdog.
  void heartbeat(const char* phase) const { hooks_.heartbeat(phase); }

 private:
  Transformer load_together(const char* phase, const std::function<Transformer(const LoadHook&)>& load) const;

  const OpenModel& source_;
  std::unique_ptr<ProcessGroup> group_;
  Hooks hooks_;
  ThreadPool pool_;
  std::optional<Transformer> model_;
};

}  // namespace magister
