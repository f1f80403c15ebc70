// The worker that examines on a shard: it leads the objectives that its group claims to their items.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "magister/engine/constraint.h"
#include "magister/run/shard_worker.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/stop_rules.h"
#include "magister/text/tokenizer.h"
#include "tasks/exam/columns.h"
#include "tasks/exam/config.h"
#include "tasks/exam/objective_run.h"
#include "tasks/exam/objectives.h"
#include "tasks/exam/prompts.h"
#include "tasks/exam/source.h"
#include "tasks/exam/validator.h"

namespace magister {

// Everything besides the model that decides the exam. The job opens it, and the workers of all shards read it.
struct ExamSetup {
  // Reads the source. Keeps a reference to checkpoint. Throws Error(kConfig) or Error(kData).
  ExamSetup(ExamConfig exam, Checkpoint& checkpoint);
  ExamSetup(const ExamSetup&) = delete;

  ExamTopic topic(std::uint64_t record, const ExamObjective& objective) const;
  std::string text_of_tokens(std::span<const TokenId> prompt, std::span<const TokenId> tokens) const {
    return text_of(tokenizer, prompt, tokens, stops);
  }
  // Passages per objective: fewer than requested if the source has fewer.
  std::size_t num_passages() const { return std::min<std::size_t>(config.passages, chunks.size()); }
  std::string source_sha256() const;
  // Whose verdicts the checks are: the validator's prompts if there is one.
  const ExamPrompts& checks() const { return check_prompts ? *check_prompts : prompts; }
  ExamShape shape(std::uint64_t num_objectives, std::uint64_t num_tokens, std::uint64_t key_bytes) const;

  ExamConfig config;  // without `auto`; its sampling has the model's rules
  const Tokenizer& tokenizer;
  const ExamPrompts prompts;
  StopRules stops;
  const std::vector<SourceChunk> chunks;
  const ChunkIndex index;
  std::map<ItemKind, std::unique_ptr<const Constraint>> constraints;
  // With objectives.auto; the chunk with the most bytes, for the longest prompt.
  std::unique_ptr<const Constraint> objective_constraint;
  std::string longest_chunk;
  std::vector<ExamObjective> objectives;  // by record; their texts are empty until the model has written them
  // Set by the job:
  std::unique_ptr<ExamValidator> validator;          // null: the model that writes the items answers the checks
  std::unique_ptr<const ExamPrompts> check_prompts;  // of the validator
  std::string pairs_path;                            // of the file with the verdicts about pairs of items
};

// The objectives that the model wrote, as the rows of the running file have them. Throws Error(kData) for a damaged
// file.
std::vector<ExamObjective> written_objectives(const ResultsFile& running, const ExamSetup& setup);

// Keeps a reference to setup. Collective over the group.
std::unique_ptr<ShardWorker> make_exam_worker(ShardContext shard, const ExamSetup& setup, const ExamShape& shape);

}  // namespace magister
