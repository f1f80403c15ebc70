// The model of `validator.model`: it answers the checks instead of the model that writes the items. It stands on the
// same devices, next to that model, and has a tokenizer, a chat template and a cache of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/run/generator_shard.h"
#include "magister/run/side_model.h"
#include "magister/run/task.h"
#include "magister/runtime/memory_plan.h"
#include "tasks/exam/config.h"

namespace magister {

// The validator as known from the config alone; none if the writing model answers the checks. device: as for
// Task::pass_shape().
std::vector<SecondModel> validator_models(const ExamConfig& config, const PassLimits& device);

class ExamValidator {
 public:
  // config: without `auto`; its validator must be set. own: the shape of the writing model's passes. Throws
  // Error(kConfig) for a model that is no language model, cannot be divided as the other one is, or has too few
  // positions. Collective over the world.
  ExamValidator(const ExamConfig& config, const TaskInputs& inputs, const PassShape& own);

  bool is_placeholder() const { return model_.is_placeholder(); }
  Checkpoint& checkpoint() { return model_.checkpoint(); }
  // model_sha256, tokenizer_sha256 and so on, with the prefix validator_. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
    model_.keep_weights(store, identity, names);
  }
  // On a GPU: bytes that the writing model's cache leaves to this model.
  std::uint64_t gpu_bytes() const { return gpu_bytes_; }
  // Memory on a device, itemised.
  MemoryParts memory() const;
  // "llama, 134.5 M parameters, f32".
  std::string describe() const;
  // The argument of GeneratorShard::load_second(); it keeps a reference to this object.
  ShardSecond shard_second() const;

 private:
  void check(const TaskInputs& inputs);
  void divide_cache(const OpenModel& writer, const PassShape& own);
  std::int64_t num_pages() const;

  ModelSection section_;
  BatchKeys batch_;
  std::uint64_t longest_;  // tokens of a prompt
  std::string length_place_;
  PassShape pass_;
  int tp_size_;
  SideModel model_;
  std::uint64_t gpu_bytes_ = 0;
};

}  // namespace magister
