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
// Upper bound of the file.
std::uint64_t train_results_bytes(std::uint64_t num_steps);
// The whole file, from attributes without num_samples and num_tokens; of pairs and of GRPO with columns of the rewards. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         Objective objective);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
