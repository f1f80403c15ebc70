// The work of the model for an exam, estimated before it runs: `magister plan` shows it.
#pragma once

#include <string>

#include "magister/run/time_estimate.h"
#include "magister/runtime/pass_shape.h"
#include "tasks/exam/config.h"

namespace magister {

// For one version of every item. An item that is refused n times costs n + 1 times its share.
struct ExamWork {
  double items = 0, checks = 0;    // texts that are written; prefills
  double given = 0, computed = 0;  // tokens of all prompts; without beginnings that prompts share
  double written = 0;              // tokens of items
  double passes = 0;               // of the model, by one group
  double at_once = 1;              // items that are written at the same time

  ModelWork model_work() const;  // of the computed tokens
  std::string in_words() const;  // for a line of `plan`
};

// The objectives have `prompt_tokens` tokens in all their first prompts. An item is counted as 130 tokens, and the end
// of a prompt after its passages as 150 (to write) or 110 (to check), as SmolLM2 has them on configs/exam.yaml; other
// tokenizers and longer items differ.
ExamWork expected_work(const ExamConfig& config, double objectives, double prompt_tokens, const PassLimits& pass);

}  // namespace magister
