// The datasets of a training's results - a sample is a step - and what `check` demands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/train/trainer.h"
#include "tasks/train/policy_steps.h"

namespace magister {

struct StepRow {
  float loss = 0, lr = 0, grad_norm = 0;
  std::uint64_t tokens = 0;
  PairRewards rewards{};
  PolicyCurve policy{};
};
// A held-out loss and the steps that were done before it.
struct EvaluationRow {
  std::uint64_t step = 0;
  float loss = 0;
};
// Upper bound of the file.
std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations);
// The whole file, from attributes without num_samples and num_tokens; of pairs and of GRPO with columns of the rewards. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         Objective objective, const std::vector<EvaluationRow>& evaluations);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
