// Generates the texts that a step of GRPO learns from, with the current weights. Every rank generates its share. A text
// depends only on the experiment, the step, the prompt and the number of the text, so the number of ranks and restarts
// do not change it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/engine/generator.h"
#include "magister/parallel/communicator.h"
#include "magister/run/shard_model.h"
#include "magister/tasks/rollout/text_reward.h"
#include "magister/text/tokenizer.h"
#include "magister/train/trainer.h"
#include "tasks/train/config.h"
#include "tasks/train/samples.h"

namespace magister {

struct GrpoText {
  // prompt: its number in the working file; sample: the number of the text for this prompt
  std::uint64_t prompt = 0, sample = 0;
  std::vector<TokenId> tokens;  // with the end token
  bool truncated = false;       // true: ended by grpo.max_new_tokens
  double reward = 0, advantage = 0;
  std::optional<Unread> unread{};  // nothing: the reward does not report which texts it did not compare
  std::string where{}, text{};     // the record, for messages, and the decoded text; only on the rank that generated it
};

// How texts are generated, rewarded and logged.
struct TextRules {
  const Tokenizer* tokenizer = nullptr;
  std::vector<TokenId> end_tokens;
  std::shared_ptr<const ModelRules> rules;  // the model's own; null: none
  // Rewards of texts of one prompt; they are finite. heartbeat: called between passes. Local, one thread.
  std::function<TextRewards(std::span<const GrpoText>, int num_threads, const std::function<void()>& heartbeat)>
      rewards;
  std::string log_folder;  // for grpo.log_completions; empty: nothing is logged
};

// The model and the memory of a rank's generator: the trained model for inference, in f32, or in bf16 on a GPU if
// train.precision is bf16, and its KV cache. On a GPU it is in memory together with the weights and the optimizer of
// the trainer, before gradients exist.
struct GrpoModel {
  OpenModel model;  // its file is that of the checkpoint
  PassShape pass;
  PassLimits limits;  // largest numbers of sequences and of tokens in a pass
  std::int64_t num_pages = 0;
};
// reserved_bytes: GPU memory that the trainer will allocate later.
GrpoModel grpo_model(const OpenModel& trained, const TrainConfig& config, std::uint64_t longest_prompt,
                     std::uint64_t reserved_bytes);

class GrpoWriter {
 public:
  // All arguments are kept by reference.
  GrpoWriter(const ModelRun& run, const Communicator& world, const TrainConfig& config, const TrainingSamples& data,
             Trainer& trainer, const TextRules& rules);

  // The texts of all prompts, in the order of the prompts, with rewards and advantages, on every rank. step: the update
  // (from 0) that the texts are generated for. nullopt: the job was asked to stop. Throws Error(kData) with the record
  // if logits are not finite. Collective over world.
  std::optional<std::vector<GrpoText>> write(std::uint64_t step, const Samples& prompts);

 private:
  std::string text_of(const GrpoText& text) const;
  bool reward(std::uint64_t step, std::vector<GrpoText>& texts);
  std::vector<GrpoText> write_own(std::uint64_t step, const Samples& prompts, IndexRange texts);
  std::vector<GrpoText> gathered_texts(const std::vector<GrpoText>& own, const Samples& prompts) const;
  void log(std::uint64_t step, const std::vector<GrpoText>& texts) const;

  const ModelRun& run_;
  const Communicator& world_;
  const TrainConfig& config_;
  const TrainingSamples& data_;
  Trainer& trainer_;
  const TextRules& rules_;
  const GrpoModel source_;
  bool tested_ = false;  // true: the fast kernels were compared with the plain code
};

}  // namespace magister
