// The worker that judges on a shard: it runs the generator over the prompts of the units that its group claims.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "magister/run/shard_worker.h"
#include "magister/runtime/checkpoint.h"
#include "magister/tasks/judge/prompts.h"
#include "magister/tasks/judge/scoring.h"
#include "magister/text/tokenizer.h"
#include "tasks/judge/combine.h"
#include "tasks/judge/config.h"

namespace magister {

// Everything besides the model that decides the verdicts. The job opens it, and the workers of all shards read it.
struct JudgeSetup {
  // Keeps a reference to checkpoint.
  JudgeSetup(JudgeConfig judge, Checkpoint& checkpoint);

  const JudgeConfig config;  // without `auto`
  const Tokenizer& tokenizer;
  const JudgePrompts prompts;
  const std::vector<VerdictClass> classes;
  const VerdictTokens tokens;               // of the classes
  std::vector<TokenId> ends;                // tokens that end a reply, ascending; empty if no replies are written
  std::shared_ptr<const ModelRules> rules;  // for its replies; null: none
  std::optional<JudgePanel> panel;          // of this run; nullopt: only this task's own verdicts
};

// Keeps a reference to setup. Collective over the group.
std::unique_ptr<ShardWorker> make_judge_worker(ShardContext shard, const JudgeSetup& setup);

}  // namespace magister
