// The key `guide` of a task that writes: a value model says what each of the reference's best tokens is worth. Legend: V vocabulary.
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

// The section `guide` of a task, absent without one.
std::optional<GuideConfig> read_guide(ConfigNode& node, const ExperimentConfig& experiment);

// Sizes of the guided texts, equal on every rank.
struct GuidedTexts {
  std::uint64_t longest = 0;        // tokens, prompt and text
  std::uint64_t max_sequences = 0;  // at once
  std::uint64_t token_budget = 0;   // of a pass
  PassShape pass{};                 // of the reference
  std::uint64_t beside_bytes = 0;   // on a GPU: of what else stands there
};

// The value model by the keys alone; nothing for a multiplier of 0.
std::vector<SecondModel> value_models(const std::optional<GuideConfig>& guide, const GuidedTexts& texts);

// The value model's files, opened and held against the reference: the same tokenizer, a decoder with a head of labels that
// the form reads, positions for the longest text. Until an earlier task has trained it, what that task starts from is its placeholder.
class ValueModel {
 public:
  // config is kept by reference. Throws Error(kConfig) naming the key. Collective over the world.
  ValueModel(const GuideConfig& config, const TaskInputs& inputs, const GuidedTexts& texts);

  const GuideParams& params() const { return config_.params; }
  bool is_placeholder() const { return model_.is_placeholder(); }
  // Ids from here on have no row in its table: they are never candidates, and no prompt may have them.
  std::int64_t vocab_size() const { return model_.config().vocab_size; }
  std::uint64_t parameters_a_token() const { return model_.config().parameters_a_token(); }
  // model_sha256, tokenizer_sha256 and so on, under names that begin with guide_. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // As TaskJob::keep_weights(), of this model; of a multiplier of 0 there is nothing.
  void keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names);
  // On a GPU: bytes that the reference's cache leaves to this model, weights, passes and its part of what they both leave free.
  std::uint64_t bytes_beside_reference() const { return beside_reference_; }
  // Pages of its cache for texts of `longest` tokens and their candidates, as many as the cache's budget has, at least one text's. Local.
  std::int64_t num_pages(std::uint64_t longest) const;
  // Memory of a device, itemised, with a cache for texts of `longest` tokens.
  MemoryParts memory(std::uint64_t longest) const;
  // "llama, 0.1 M parameters, f32: 20 candidates, logit, multiplier 4".
  std::string describe() const;
  // What GeneratorShard::guide() takes, for texts of at most `longest` tokens; it keeps a reference to this.
  ShardGuide shard_guide(std::uint64_t longest) const;

 private:
  void check(const TaskInputs& inputs);
  void divide_cache(const OpenModel& reference);
  PassShape pass() const;

  const GuideConfig& config_;
  GuidedTexts texts_;
  int tp_size_;
  SideModel model_;
  std::uint64_t beside_reference_ = 0;
};

}  // namespace magister
