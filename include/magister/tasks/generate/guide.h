// The key `guide` of a task that writes texts: a value model rates the reference's best tokens. Legend: V vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/engine/guide.h"
#include "magister/experiment/config.h"
#include "magister/model/transformer.h"
#include "magister/run/generator_shard.h"
#include "magister/run/side_model.h"
#include "magister/run/task.h"
#include "magister/runtime/memory_plan.h"

namespace magister {

struct GuideConfig {
  ModelSection model;  // in f32 or bf16
  GuideParams params;
  std::string model_place, form_place, candidates_place;  // file:line:column and key
};

// Reads the section `guide` of a task; nullopt if there is none.
std::optional<GuideConfig> read_guide(ConfigNode& node, const ExperimentConfig& experiment);

// Sizes of the guided texts, equal on every rank.
struct GuidedTexts {
  std::uint64_t longest = 0;         // tokens, prompt and text together
  std::uint64_t max_sequences = 0;   // written at the same time
  std::uint64_t token_budget = 0;    // tokens per pass
  PassShape pass{};                  // of the reference
  std::uint64_t reserved_bytes = 0;  // on a GPU: bytes of further models, such as a reward model
};

// The value model as known from the config alone; none for a multiplier of 0.
std::vector<SecondModel> value_models(const std::optional<GuideConfig>& guide, const GuidedTexts& texts);

// The value model's files, opened and checked against the reference: it needs the same tokenizer, a decoder with a
// classification head that fits the form, and positions for the longest text. Until an earlier task has trained the
// model, the model from which that task starts is its placeholder.
class ValueModel {
 public:
  // Keeps a reference to config. Throws Error(kConfig) naming the key. Collective over the world.
  ValueModel(const GuideConfig& config, const TaskInputs& inputs, const GuidedTexts& texts);

  const GuideParams& params() const { return config_.params; }
  bool is_placeholder() const { return model_.is_placeholder(); }
  // Token ids from here on have no row in the model's embedding: they are never candidates, and prompts must not have
  // them.
  std::int64_t vocab_size() const { return model_.config().vocab_size; }
  std::uint64_t parameters_a_token() const { return model_.config().parameters_a_token(); }
  // model_sha256, tokenizer_sha256 and so on, with the prefix guide_. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // TaskJob::keep_weights() for this model; does nothing for a multiplier of 0.
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names);
  // On a GPU: bytes that the reference's cache leaves to this model: its weights, its passes and its share of the
  // remaining memory.
  std::uint64_t gpu_bytes() const { return gpu_bytes_; }
  // Pages of this model's cache for texts of `longest` tokens and their candidates: as many as the cache's budget
  // allows, but at least enough for one text. Local.
  std::int64_t num_pages(std::uint64_t longest) const;
  // Memory on a device, itemised, with a cache for texts of `longest` tokens.
  MemoryParts memory(std::uint64_t longest) const;
  // "llama, 0.1 M parameters, f32: 20 candidates, logit, multiplier 4".
  std::string describe() const;
  // The argument of GeneratorShard::guide(), for texts of at most `longest` tokens; it keeps a reference to this
  // object.
  ShardGuide shard_guide(std::uint64_t longest) const;

 private:
  void check(const TaskInputs& inputs);
  void divide_cache(const OpenModel& reference);
  PassShape pass() const;

  const GuideConfig& config_;
  GuidedTexts texts_;
  int tp_size_;
  SideModel model_;
  std::uint64_t gpu_bytes_ = 0;
};

}  // namespace magister
