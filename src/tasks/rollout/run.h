// The loop of `rollout`: every shard of this rank runs the generator over the records that its group claims.
#pragma once

#include <mutex>
#include <optional>

#include "magister/io/dataset/dataset.h"
#include "magister/run/generator_shard.h"
#include "magister/run/shard_model.h"
#include "magister/runtime/stop_rules.h"
#include "magister/tasks/rollout/rollouts_file.h"
#include "magister/tasks/rollout/text_reward.h"
#include "tasks/rollout/config.h"

namespace magister {

struct RolloutRun {
  ModelRun base;
  const RolloutConfig& config;
  const RolloutShape& shape;
  const Tokenizer& tokenizer;
  const StopRules& rules;
  const Dataset& dataset;
  std::mutex& reading;                // of this rank's shards
  TextReward& reward;                 // of the group's leader; of a model on GPUs each shard has its part
  std::int64_t num_pages;             // of the cache, equal on every rank
  std::optional<ShardGuide> guide{};  // nothing: texts are not guided
};

// Runs until no record is left or the job stops; committed records stay. Collective over the group.
void run_rollout_units(const RolloutRun& run);

}  // namespace magister
