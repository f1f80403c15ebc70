// The key `constraint` of a task that writes texts: the rule that its texts must match. It has one of four kinds and is
// given inline or in a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/core/types.h"
#include "magister/engine/constraint.h"
#include "magister/parallel/communicator.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct ConstraintConfig {
  ConstraintRule::Kind kind = ConstraintRule::Kind::kRegex;
  std::string key;                   // "json_schema"
  std::string text;                  // as written in the experiment: inline, or a path
  std::vector<std::string> choices;  // kChoice
  std::string place;                 // file:line:column and key, for errors in the rule itself
};

// Reads the section `constraint` of a task; nullopt if there is none.
std::optional<ConstraintConfig> read_constraint(ConfigNode& node);

// The rule, with the content of its file: a schema that does not begin with "{", or a grammar without "::=", is a path.
// Rank 0 reads the file once. Throws Error(kConfig) on all ranks, also for schemas with keywords that the grammar
// library would ignore. task_name: for messages. Collective over the world.
ConstraintRule load_constraint(const Communicator& world, const ConstraintConfig& config, const std::string& task_name);

// Hash of the rule's kind and content, independent of its file. The results file stores it, so that resuming detects a
// changed schema although the experiment names the same path.
std::string constraint_sha256(const ConstraintRule& rule);

// end_tokens and vocab_size are the model's. Local.
std::unique_ptr<const Constraint> compile_constraint(const ConstraintRule& rule, const Tokenizer& tokenizer,
                                                     std::span<const TokenId> end_tokens, std::int64_t vocab_size);

}  // namespace magister
