// The loop of `judge` and the columns of its results: a sample a judged prompt.
#pragma once

#include "magister/io/results/schema.h"
#include "magister/run/shard_model.h"
#include "magister/tasks/judge/scoring.h"
#include "magister/text/tokenizer.h"
#include "tasks/judge/combine.h"
#include "tasks/judge/config.h"

namespace magister {

// n samples of T prompt tokens in all; C verdicts; replies of at most reply_tokens, 0: none are written.
struct JudgeShape {
  std::uint64_t num_samples = 0, num_tokens = 0, classes = 2, key_bytes = 1, reply_tokens = 0;
};

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape);

struct JudgeRun {
  ModelRun base;
  const JudgeConfig& config;
  std::uint64_t orders, samples_a_text;  // samples of a text and prompt, and of a text
  const std::vector<VerdictClass>& classes;
  const VerdictTokens& tokens;  // of the classes
  const Tokenizer& tokenizer;
  const std::vector<TokenId>& ends;         // tokens that end a reply, ascending
  const JudgePanel* panel;                  // null: this task's own verdicts alone
  std::int64_t num_pages;                   // of the cache, equal on every rank
  std::shared_ptr<const ModelRules> rules;  // of replies; null: none
};

// Runs until no unit is left or the job stops; committed units stay. Collective over the group.
void run_judge_units(const JudgeRun& run);

// What `check` demands of verdicts.
extern const ResultsSchema kJudgeSchema;

}  // namespace magister
