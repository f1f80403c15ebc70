// Records that are prompts of GRPO - texts, or chats after which an answer follows - as tokens, and what their texts are worth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/checkpoint.h"
#include "tasks/train/config.h"
#include "tasks/train/rewards.h"
#include "tasks/train/rollouts.h"

namespace magister {

class PromptEncoder {
 public:
  // All are kept by reference; tokenizer and end tokens become a part of the checkpoint's identity. Throws Error(kConfig) for what the model cannot do,
  // and for a reward that cannot be computed. Collective over the context's world.
  PromptEncoder(Checkpoint& checkpoint, const TrainConfig& config, const RunContext& context, const Dataset& records);

  // Throws Error(kData) with the record's place, also for an answer that is missing.
  std::vector<TokenId> encode(const Record& record) const;
  const TextReward& reward() const { return reward_.texts(); }
  TextReward& reward() { return reward_.texts(); }
  bool has_chats() const { return chat_.has_value(); }
  const std::vector<TokenId>& end_tokens() const { return ends_; }
  // What the writer of texts asks for; refers to this. log_folder: where texts go if they are logged. Collective over world.
  TextRules text_rules(const Communicator& world, const Dataset& records, const std::string& log_folder);

 private:
  Checkpoint& checkpoint_;
  const TrainConfig& config_;
  std::optional<ChatPrompts> chat_;
  RewardFunction reward_;
  std::vector<TokenId> ends_;  // of the texts that are written
};

}  // namespace magister
