// The keys of `task: score`. configs/keys/score.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/engine/unit_plan.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/length_key.h"
#include "magister/tasks/score/verifier_config.h"

namespace magister {

// The function that is applied to the logits; `none` is usual for the training of students and policies.
enum class ScoreFunction { kNone, kSigmoid, kSoftmax };

// A verifier that is used instead of a model, and the field of a record that it reads.
struct ScoreVerifier {
  VerifierConfig rule;
  std::string completion_field = "completion";  // used if no generate task wrote the completions
};

struct ScoreConfig {
  std::string name = "score";
  ModelSection model;
  DatasetConfig dataset;
  LengthKey max_length;      // tokens per record
  std::string length_place;  // file:line:column and key
  Overflow overflow = Overflow::kTruncate;
  std::uint64_t unit_tokens = 2048;
  ScoreFunction function = ScoreFunction::kNone;
  std::string function_place;
  bool share_prefixes = true;
  std::optional<ScoreVerifier> verifier;  // if set, model.none is true, and max_length to share_prefixes are not used
  std::string answers;                    // the generate task whose texts are scored; empty: the texts of the records
  std::string answers_place;              // file:line:column and key
};

ScoreConfig read_score_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/score/task.cpp).
TaskKind score_task();

}  // namespace magister
