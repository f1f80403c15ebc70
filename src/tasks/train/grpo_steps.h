// The steps of GRPO between the plan of prompts and the trainer: texts with rewards become micro-batches, for one
// update or several, and what they were becomes curves.
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

// What the curves of GRPO say of an update, as TrainingCurves keeps them: 8 numbers of f32 a step.
struct PolicyCurve {
  float reward = 0, reward_std = 0, kl = 0, clip_ratio = 0, truncated = 0;
  std::uint64_t tokens = 0, texts = 0;  // that were learnt from, exactly
  std::vector<float> numbers() const;
  static PolicyCurve of(const float* numbers);
};

class GrpoSteps {
 public:
  // The first two are kept by reference.
  GrpoSteps(const StepInputs& inputs, const TrainConfig& config, TextRules rules);

  // Micro-batches of the texts of an update (from 0), that learns from these prompts; it writes texts unless they are
  // those of the update before. nullopt: the job was asked to stop. Collective over the world.
  std::optional<StepBatches> batches(std::uint64_t update, const std::vector<Samples>& planned);
  PolicyCurve curve(const StepResult& result) const;
  // Of the texts; nothing: their reward does not tell which it did not compare.
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
