// The datasets of a training's results - a sample is a step - and what `check` demands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/train/trainer.h"
#include "tasks/train/evaluation.h"
#include "tasks/train/policy_steps.h"

namespace magister {

struct StepRow {
  float loss = 0, lr = 0, grad_norm = 0;
  std::uint64_t tokens = 0;
  PairRewards rewards{};
  PolicyCurve policy{};
  ValueMeans value{};
};
// What held-out records say, and the steps that were done before it.
struct EvaluationRow {
  std::uint64_t step = 0;
  Evaluation found{};
  // As TrainingCurves keeps them: evaluation_width() numbers.
  std::vector<float> numbers(Objective objective) const;
  static EvaluationRow of(std::uint64_t step, const float* numbers, Objective objective);
};
// The loss; of pairs the mean rewards of chosen and rejected answers and the accuracy, too.
constexpr std::int64_t evaluation_width(Objective objective) {
  return objective == Objective::kDpo || objective == Objective::kReward ? 4 : 1;
}
// Upper bound of the file.
std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations);
// The whole file, from attributes without num_samples and num_tokens; of pairs, GRPO and value models with columns of their own. Local, one rank.
void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         Objective objective, bool distills, const std::vector<EvaluationRow>& evaluations);

extern const ResultsSchema kTrainSchema;

}  // namespace magister
