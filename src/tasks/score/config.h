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

// What is made of the head's numbers; `none` is what trainers of students and policies want.
enum class ScoreFunction { kNone, kSigmoid, kSoftmax };

// A rule instead of a model: which one, and where a record holds what it compares.
struct ScoreVerifier {
  VerifierConfig rule;
  std::string completion_field = "completion";  // where no generate task wrote the completions
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
  std::optional<ScoreVerifier> verifier;  // then the six above say nothing, and model is none
  std::string answers;                    // the generate task whose texts are scored; empty: the records'
  std::string answers_place;              // file:line:column and key
};

ScoreConfig read_score_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/score/task.cpp).
TaskKind score_task();

}  // namespace magister
