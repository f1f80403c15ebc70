// The keys of `grpo:` of task train: names and defaults of TRL's GRPOConfig, and of this program's `generate` for the texts that are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/engine/sampler.h"
#include "magister/experiment/config.h"
#include "magister/runtime/length_key.h"
#include "magister/tasks/rollout/text_reward.h"
#include "magister/train/policy_loss.h"

namespace magister {

struct GrpoConfig {
  std::uint64_t num_generations = 8, max_new_tokens = 512;
  LengthKey text_length;             // max_new_tokens
  std::uint64_t num_iterations = 1;  // updates from the same texts
  SamplingParams sampling;
  PolicyReduction reduction = PolicyReduction::kDapo;
  RewardScale scale = RewardScale::kGroup;
  bool log_completions = false;
  RewardConfig reward;
};

// policy: what the trainer has to know. Reads every key whether grpo applies or not.
GrpoConfig read_grpo(ConfigNode& task, bool applies, const ExperimentConfig& experiment, PolicyOptions& policy);

}  // namespace magister
