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
#include "magister/runtime/record_prompt.h"
#include "magister/runtime/text_keys.h"
#include "magister/tasks/generate/constraint_config.h"
#include "magister/tasks/generate/guide.h"

namespace magister {

class Task;

// The most that the requests of a file ask for.
struct MostAsked {
  std::uint64_t new_tokens = 1;  // a request that names no number counts as the usual one
  std::uint64_t texts = 1;
  std::uint64_t top_logprobs = 0;
};

// One entry of logit_bias: a token, named by its text or, if that is empty, by its id.
struct LogitBias {
  std::string token;
  TokenId id = -1;
  float bias = 0;
  std::string place;  // file:line:column and key
};

struct GenerateConfig : TextLengths, BatchKeys {
  std::string name = "answers";
  ModelSection model;     // the task's own or the experiment's
  DatasetConfig dataset;  // with slice
  // Templates over a record's fields; nullopt: the prompt is the record's text, chat or ids.
  std::optional<PromptTexts> prompt;
  bool requests = false;               // records are requests of an OpenAI batch file (openai_request.h)
  std::uint64_t usual_new_tokens = 0;  // max_new_tokens of `auto`, whatever requests ask for
  // With requests: n and top_logprobs as keys that the file sets unless they are written.
  LengthKey n_key, top_logprobs_key;
  bool use_chat_template = true;  // with prompt; off: system and user prompt as plain text
  std::uint64_t seed = 0;         // the experiment's
  std::uint64_t n = 1;            // texts per record
  bool best_of_is_written = false;
  std::uint64_t best_of = 1;  // texts written per record; the n with the best mean log-probability are kept
  SamplingParams sampling;    // without logit_bias: the tokenizer gives its ids
  std::vector<LogitBias> logit_bias;
  std::uint64_t top_logprobs = 0;                     // number kept per token
  std::string top_logprobs_place, stop_tokens_place;  // file:line:column and key
  std::optional<ConstraintConfig> constraint;
  std::optional<GuideConfig> guide;
  std::vector<std::string> stop;     // strings that end a text; their tokens are kept, the text ends before them
  std::vector<TokenId> stop_tokens;  // in addition to the model's own end tokens
  bool ignore_eos = false;           // continue after the model's end tokens

  // Sets the keys that are not written to the most that requests ask for; see MostAsked. Local.
  void take(const MostAsked& asked);
};

GenerateConfig read_generate_config(ConfigNode& node, const ExperimentConfig& experiment);
// Defined in src/tasks/generate/task.cpp.
TaskKind generate_task();

}  // namespace magister
