// The texts that a step of GRPO learns from: written by the program's own generator with the weights as they are, by
// every rank its share. A text is a function of experiment, step, prompt and its number, so neither ranks nor a restart
// change one.
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
  std::uint64_t prompt = 0, sample = 0;  // the prompt's number in the working file; which of its texts
  std::vector<TokenId> tokens;           // the end token included
  bool truncated = false;                // by grpo.max_new_tokens
  double reward = 0, advantage = 0;
  std::optional<Unread> unread{};  // nothing: the reward does not tell texts that it did not compare
  std::string where{}, text{};     // the record, for messages, and the text behind its prompt: where it was written
};

// What the task knows of texts.
struct TextRules {
  const Tokenizer* tokenizer = nullptr;
  std::vector<TokenId> end_tokens;
  std::shared_ptr<const ModelRules> rules;  // the model's own; null: none
  // Of texts of one prompt, finite; heartbeat: called between passes. Local, one thread.
  std::function<TextRewards(std::span<const GrpoText>, int num_threads, const std::function<void()>& heartbeat)>
      rewards;
  std::string log_folder;  // for grpo.log_completions; empty: nothing is logged
};

// What a rank's generator reads and takes: the model of the training as it is for inference, in f32, or in bf16 on a
// GPU where train.precision says so, and its pages of keys and values. On a GPU it stands beside the trainer's weights
// and optimizer, before there are gradients.
struct GrpoModel {
  OpenModel model;  // its file is the checkpoint
  PassShape pass;
  PassLimits limits;  // sequences and tokens of a pass
  std::int64_t num_pages = 0;
};
// beside_bytes: what the trainer takes on the GPU that is not there yet.
GrpoModel grpo_model(const OpenModel& trained, const TrainConfig& config, std::uint64_t longest_prompt,
                     std::uint64_t beside_bytes);

class GrpoWriter {
 public:
  // Everything is kept by reference.
  GrpoWriter(const ModelRun& run, const Communicator& world, const TrainConfig& config, const TrainingSamples& data,
             Trainer& trainer, const TextRules& rules);

  // The texts of all prompts, prompt by prompt, with rewards and advantages, on every rank. step: the update that they
  // are written for, from 0. nullopt: the job was asked to stop. Throws Error(kData) naming the record whose logits are
  // not finite. Collective over world.
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
  bool tested_ = false;  // the fast paths against plain code
};

}  // namespace magister
