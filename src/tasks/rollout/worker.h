// The worker that writes and rewards texts on a shard: it runs the generator over the records that its group claims.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "magister/io/dataset/dataset.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/stop_rules.h"
#include "magister/tasks/rollout/rollouts_file.h"
#include "magister/tasks/rollout/text_reward.h"
#include "magister/text/tokenizer.h"
#include "tasks/rollout/config.h"

namespace magister {

// Everything besides the model that decides texts and rewards. The job opens it, and the workers of all shards use it.
struct RolloutSetup {
  RolloutConfig config;  // without `auto`; its sampling has the model's rules
  const Tokenizer& tokenizer;
  const Dataset& dataset;
  StopRules stops{};
  std::unique_ptr<TextReward> reward{};  // used by the group's leader; if its model is on GPUs, each shard has its part
  std::optional<ShardGuide> guide{};     // of this run; nullopt: texts are not guided
  std::mutex reading{};                  // held while a worker reads records
};

// The number of a roll-in's tokens that stay before a cut: uniform on [first_cut, tokens - 1] for a uniform number u in
// [0, 1), so at least one token is written anew. A roll-in of first_cut tokens or less is cut before its last token.
// Throws Error(kInternal) for a roll-in without tokens. Local, pure.
std::uint32_t cut_of(double u, std::uint64_t first_cut, std::uint64_t tokens);

// Keeps a reference to setup. Collective over the group.
std::unique_ptr<ShardWorker> make_rollout_worker(ShardContext shard, RolloutSetup& setup, const RolloutShape& shape);

}  // namespace magister
