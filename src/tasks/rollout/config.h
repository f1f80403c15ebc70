// The keys of `task: rollout`. configs/keys/rollout.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/engine/sampler.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/text_keys.h"
#include "magister/tasks/generate/guide.h"
#include "magister/tasks/rollout/text_reward.h"

namespace magister {

// max_new_tokens: of a whole text, which is the roll-in up to a cut and its continuation.
struct RolloutConfig : TextLengths, BatchKeys {
  std::string name = "rollouts";
  ModelSection model;
  DatasetConfig dataset;
  std::uint64_t seed = 0;
  bool roll_in_greedy = true;
  std::uint64_t cuts = 4;       // per record
  std::uint64_t first_cut = 1;  // smallest number of roll-in tokens that are kept
  std::uint64_t n = 2;          // continuations per cut
  bool first_greedy = true;     // the first continuation of each cut is greedy
  bool continue_guided = true;  // if there is a guide, it guides the continuations
  SamplingParams sampling;
  std::optional<GuideConfig> guide;
  RewardConfig reward;
  double scale = 1;  // factor of the reward
  double beta = 1;   // the first text wins with probability sigmoid(beta (its reward - the other's))
  std::vector<std::string> stop;
  bool ignore_eos = false;

  std::uint64_t texts() const { return cuts * n; }
};

RolloutConfig read_rollout_config(ConfigNode& node, const ExperimentConfig& experiment);
// Defined in src/tasks/rollout/task.cpp.
TaskKind rollout_task();

}  // namespace magister
