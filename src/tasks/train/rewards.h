// Rewards of the texts of GRPO, whose records every rank must know: who writes a text is decided by the step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/run/run_context.h"
#include "magister/tasks/rollout/text_reward.h"
#include "tasks/train/config.h"
#include "tasks/train/rollouts.h"

namespace magister {

class RewardFunction {
 public:
  // Both are kept by reference. Throws Error(kConfig) for a model that cannot be used. Collective over the context's
  // world.
  RewardFunction(const TrainConfig& config, const TokenizerIdentity& tokenizer, const RunContext& context);

  // What rewards of a record's texts need of it: its answers, its prompt for another model, or nothing. Throws Error(kData) with its place.
  std::vector<std::string> needed(const Record& record) const { return reward_.needed(record); }
  const TextReward& texts() const { return reward_; }
  TextReward& texts() { return reward_; }
  // Of all records, in order; every rank reads its part. Before rewards(). Collective over world.
  void read_records(const Communicator& world, const Dataset& records);
  // Of texts of one prompt, finite; heartbeat as of TextReward. Local.
  TextRewards rewards(std::span<const RolloutText> texts, int num_threads, const std::function<void()>& heartbeat);

 private:
  const RewardConfig& config_;
  TextReward reward_;
  std::vector<std::vector<std::string>> needed_;  // by prompt
};

}  // namespace magister
