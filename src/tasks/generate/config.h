// The keys of `task: generate`. configs/keys/generate.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/core/types.h"
#include "magister/engine/sampler.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/text_keys.h"
#include "magister/tasks/generate/guide.h"
#include "tasks/generate/constraint_config.h"

namespace magister {

class Task;

// One entry of logit_bias: a token by its text or, without one, by its id.
struct LogitBias {
  std::string token;
  TokenId id = -1;
  float bias = 0;
  std::string place;  // file:line:column and key
};

struct GenerateConfig : TextLengths, BatchKeys {
  std::string name = "answers";
  ModelSection model;         // the task's own or the experiment's
  DatasetConfig dataset;      // with slice
  std::uint64_t seed = 0;     // the experiment's
  std::uint64_t n = 1;        // texts per record
  std::uint64_t best_of = 1;  // texts written for a record, of which the n with the best mean log-probability stay
  SamplingParams sampling;    // without logit_bias, whose ids the tokenizer gives
  std::vector<LogitBias> logit_bias;
  std::uint64_t top_logprobs = 0;                     // kept of every step
  std::string top_logprobs_place, stop_tokens_place;  // file:line:column and key
  std::optional<ConstraintConfig> constraint;
  std::optional<GuideConfig> guide;
  std::vector<std::string> stop;     // texts that end a text; they stay in the tokens and leave the text
  std::vector<TokenId> stop_tokens;  // besides the model's own end tokens
  bool ignore_eos = false;           // write on after the model's end tokens
};

GenerateConfig read_generate_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/generate/task.cpp).
TaskKind generate_task();

}  // namespace magister
