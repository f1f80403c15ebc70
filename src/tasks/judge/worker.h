// What judges on a shard: the generator over the prompts of the units that the group claims.
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

// What decides the verdicts besides the model: the job opens it, and the workers of all shards read it.
struct JudgeSetup {
  // checkpoint is kept by reference.
  JudgeSetup(JudgeConfig judge, Checkpoint& checkpoint);

  const JudgeConfig config;  // without `auto`
  const Tokenizer& tokenizer;
  const JudgePrompts prompts;
  const std::vector<VerdictClass> classes;
  const VerdictTokens tokens;               // of the classes
  std::vector<TokenId> ends;                // that end a reply, ascending; none are asked for where none is written
  std::shared_ptr<const ModelRules> rules;  // of its replies; null: none
  std::optional<JudgePanel> panel;          // of this run; nothing: this task's own verdicts alone
};

// setup is kept by reference. Collective over the group.
std::unique_ptr<ShardWorker> make_judge_worker(ShardContext shard, const JudgeSetup& setup);

}  // namespace magister
