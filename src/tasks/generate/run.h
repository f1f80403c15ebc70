// The loop of `generate`: every shard of this rank runs the generator over the records that its group claims.
#pragma once

#include <optional>

#include "magister/run/generator_shard.h"
#include "magister/run/shard_model.h"
#include "tasks/generate/columns.h"
#include "tasks/generate/config.h"

namespace magister {

struct GenerateRun {
  ModelRun base;
  const GenerateConfig& config;
  const GenerateShape& shape;
  const Tokenizer& tokenizer;
  const StopRules& rules;
  const SamplingParams& sampling;     // the experiment's, with logit_bias by id
  const Constraint* constraint;       // null: texts are free
  std::int64_t num_pages;             // of the cache, equal on every rank
  std::optional<ShardGuide> guide{};  // nothing: texts are not guided
};

// Pages that a generator of this run has: for max_sequences texts of the longest prompt, or as many as fit into the cache's budget,
// but always enough for one text. Local.
std::int64_t num_cache_pages(const OpenModel& model, int tp_size, const GenerateConfig& config, const PassShape& pass,
                             std::uint64_t longest_prompt);

// Runs until no record is left or the job stops; committed records stay. Collective over the group.
void run_generate_units(const GenerateRun& run);

}  // namespace magister
