// ModelInstance: one shard of a model that is loaded and can be run: process group, threads, weights. It knows no task, no results file
// and no units; what serves or trains a model needs the same.
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
    std::function<void(const char* phase)> heartbeat;  // a sign of life, between two tensors
    StopPoll stop_wanted;
  };

  // source is kept by reference. Local.
  ModelInstance(const OpenModel& source, std::unique_ptr<ProcessGroup> group, int num_threads, Hooks hooks);
  ModelInstance(const ModelInstance&) = delete;
  ModelInstance& operator=(const ModelInstance&) = delete;
  ~ModelInstance() = default;

  // Loads the weights and, unless somebody has done so before, tests the fast paths. Throws Error(kStopped) on every shard when one was asked to
  // stop meanwhile. Collective over the group.
  Transformer& load(bool self_test = true);
  // The model without quantisation, for the caller to keep or to free. Throws likewise. Collective over the group.
  Transformer load_unquantized();

  Transformer& model() { return *model_; }  // after load()
  ProcessGroup& group() { return *group_; }
  ThreadPool& pool() { return pool_; }
  const OpenModel& source() const { return source_; }
  // Whether the job should stop, the same on every shard. Collective over the group.
  bool stop_agreed() const;
  // A sign of life.
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
