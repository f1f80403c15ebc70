// The key `constraint` of a task that writes: what its texts must match. One of four kinds, inline or from a file.
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
  std::string place;                 // file:line:column and key, for faults of the rule itself
};

// The section `constraint` of a task, absent without one.
std::optional<ConstraintConfig> read_constraint(ConfigNode& node);

// The rule with its file's content: a schema that does not begin with "{", or a grammar without "::=", is a path. Rank 0
// reads it once. Throws Error(kConfig) on every rank alike; schemas with keywords that would be ignored are refused here.
// task_name: for messages. Collective over the world.
ConstraintRule load_constraint(const Communicator& world, const ConstraintConfig& config, const std::string& task_name);

// Of the rule's kind and content, whatever file it came from: a results file holds it, so that a changed schema is noticed
// on resuming although the experiment names the same path.
std::string constraint_sha256(const ConstraintRule& rule);

// Local. end_tokens and vocab_size: the model's.
std::unique_ptr<const Constraint> compile_constraint(const ConstraintRule& rule, const Tokenizer& tokenizer,
                                                     std::span<const TokenId> end_tokens, std::int64_t vocab_size);

}  // namespace magister
