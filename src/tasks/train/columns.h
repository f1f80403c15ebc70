// The datasets of a training's results - a sample is a step - and what `check` demands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "tasks/train/curves.h"

namespace magister {

struct StepRow {
  float loss = 0, lr = 0, grad_norm = 0;
  std::uint64_t tokens = 0;
  const float* numbers = nullptr;  // those of the objective's curves
};
struct EvaluationRow {
  std::uint64_t step = 0;          // that were done before it
  const float* numbers = nullptr;  // what held-out records say: those of the objective's held-out curves
};
// Upper bound of the file.
std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations);
// The whole file, from attributes without num_samples and num_tokens. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         const CurveSet& of_steps, const std::vector<EvaluationRow>& evaluations,
                         const CurveSet& of_held_out);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
