// SideModel: a second model of a task, with its files open. It rewards, judges or guides. It belongs to `run` because
// an earlier task may train it. Until that task has run, the model from which its training starts is opened as a
// placeholder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "magister/core/memory_parts.h"
#include "magister/device/launch.h"
#include "magister/io/results/results_file.h"
#include "magister/model/transformer.h"
#include "magister/run/run_context.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/pass_shape.h"
#include "magister/runtime/stop.h"

namespace magister {

class SideModel {
 public:
  struct Names {
    std::string prefix;  // of the names of its attributes: "reward_"
    std::string part;    // its name in the list of memory: "reward model"
  };

  // Opens the checkpoint. Throws as available_model() and Checkpoint do. Local.
  SideModel(const ModelSection& section, const RunContext& context, Names names);
  // Opens the model, on GPUs if they are given. Must be called once, before the functions below. Collective over world.
  void open(const Communicator& world, const std::optional<gpu::Queue>& gpu = {}, const std::vector<int>& gpus = {});

  // True if the earlier task that trains it has not run.
  bool is_placeholder() const { return is_placeholder_; }
  Checkpoint& checkpoint() { return checkpoint_; }
  const ModelConfig& config() const { return checkpoint_.config(); }
  // The checkpoint's path, for messages.
  std::string path() const;
  OpenModel& model() { return model_; }
  const OpenModel& model() const { return model_; }

  // Returns model_sha256, tokenizer_sha256 and so on, each name with the prefix. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // Registers this model as TaskJob::keep_weights() does.
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
    names.push_back(model_.keep_weights(store, identity, names_.prefix));
  }
  // Returns the memory of a device, itemised; each part is named after the model.
  MemoryParts memory(int tp_size, const PassShape& pass, std::uint64_t cache_pages) const;
  // Loads this shard's model and tests its fast paths. hook: see WeightSource. Collective over the group.
  Transformer load(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) const;

 private:
  Names names_;
  bool is_placeholder_ = false;
  Checkpoint checkpoint_;
  OpenModel model_;
};

}  // namespace magister
