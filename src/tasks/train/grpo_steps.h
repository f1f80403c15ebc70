// Makes the micro-batches of GRPO: takes the prompts of the plan, has texts generated and rewarded, and uses them for
// one update or several. It also gives the numbers of the curves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "magister/tasks/score/unread_counts.h"
#include "magister/train/batch_plan.h"
#include "magister/train/policy_loss.h"
#include "magister/train/trainer.h"
#include "tasks/train/grpo_texts.h"
#include "tasks/train/open_objective.h"

namespace magister {

// The curves of GRPO for one update. TrainingCurves keeps them as 8 numbers of f32 per step.
struct PolicyCurve {
  float reward = 0, reward_std = 0, kl = 0, clip_ratio = 0, truncated = 0;
  std::uint64_t tokens = 0, texts = 0;  // of what was learnt from; exact
  std::vector<float> numbers() const;
  static PolicyCurve of(const float* numbers);
};

class GrpoSteps {
 public:
  // inputs and config are kept by reference.
  GrpoSteps(const StepInputs& inputs, const TrainConfig& config, TextRules rules);

  // The micro-batches of an update (from 0) that learns from these prompts. Generates texts unless the update uses
  // those of the update before. nullopt: the job was asked to stop. Collective over the world.
  std::optional<StepBatches> batches(std::uint64_t update, const std::vector<Samples>& planned);
  PolicyCurve curve(const StepResult& result) const;
  // Counts of the current texts; nothing: the reward does not report which texts it did not compare.
  std::optional<UnreadCounts> unread() const;

 private:
  void make_micro_batches();
  MicroBatch micro_batch(const Samples& texts, const ReductionSizes& sizes) const;

  const StepInputs& inputs_;
  const TrainConfig& config_;
  const TextRules rules_;
  GrpoWriter writer_;
  std::vector<GrpoText> texts_;
  StepBatches batches_;
};

}  // namespace magister
