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

// max_new_tokens: of a whole text, which is the roll-in up to a cut, and what follows.
struct RolloutConfig : TextLengths, BatchKeys {
  std::string name = "rollouts";
  ModelSection model;
  DatasetConfig dataset;
  std::uint64_t seed = 0;
  bool roll_in_greedy = true;
  std::uint64_t cuts = 4;       // a record
  std::uint64_t first_cut = 1;  // tokens of the roll-in that stay at least
  std::uint64_t n = 2;          // continuations of a cut
  bool first_greedy = true;     // the first of them
  bool continue_guided = true;  // by the guide, where there is one
  SamplingParams sampling;
  std::optional<GuideConfig> guide;
  RewardConfig reward;
  double scale = 1;  // of the reward
  double beta = 1;   // of the preference: the first wins with the probability sigmoid(beta (its reward - the other's))
  std::vector<std::string> stop;
  bool ignore_eos = false;

  std::uint64_t texts() const { return cuts * n; }
};

RolloutConfig read_rollout_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/rollout/task.cpp).
TaskKind rollout_task();

}  // namespace magister
