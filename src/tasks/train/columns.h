// Columns of the results file of a training, in which a sample is a step, and the rules that `check` tests.
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
  const float* numbers = nullptr;  // the values of the objective's curves
};
struct EvaluationRow {
  std::uint64_t step = 0;          // steps done before this evaluation
  const float* numbers = nullptr;  // the values of the objective's held-out curves
};
// Upper bound of the file's size, in bytes.
std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations);
// Writes the whole file. attributes: without num_samples and num_tokens, which are added here. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         const CurveSet& of_steps, const std::vector<EvaluationRow>& evaluations,
                         const CurveSet& of_held_out);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
