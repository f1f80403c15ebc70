// The steps of GRPO between the plan of prompts and the trainer: texts with rewards become micro-batches, for one update or several, and
// what they were becomes curves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "magister/tasks/score/unread_counts.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"
#include "tasks/train/rollouts.h"

namespace magister {

// What the curves of GRPO say of an update, as TrainingCurves keeps them: kPolicyCurves numbers of f32 a step.
struct PolicyCurve {
  float reward = 0, reward_std = 0, kl = 0, clip_ratio = 0, truncated = 0;
  std::uint64_t tokens = 0, texts = 0;  // that were learnt from, exactly
  std::vector<float> numbers() const;
  static PolicyCurve of(const float* numbers);
};
constexpr std::int64_t kPolicyCurves = 8;
// Numbers a step that TrainingCurves::rewards has with this objective.
constexpr std::int64_t rewards_width(Objective objective) {
  return objective == Objective::kGrpo     ? kPolicyCurves
         : objective == Objective::kTokens ? 0
         : objective == Objective::kValue  ? 2
                                           : 3;
}

class PolicySteps {
 public:
  // As RolloutWriter.
  PolicySteps(const ModelRun& run, const Communicator& world, const TrainConfig& config, const TrainingData& data,
              Trainer& trainer, const TextRules& rules);

  // Makes the micro-batches of an update (from 0) that learns from these prompts; writes texts unless they are those of the update before.
  // False: the job was asked to stop. Collective over world.
  bool prepare(std::uint64_t update, const Samples& prompts);
  // By micro-batch of the step, over all ranks, the prompts of its texts.
  const std::vector<Samples>& batches() const { return batches_; }
  const std::vector<MicroBatch>& own() const { return own_; }
  PolicyCurve curve(const StepResult& result) const;
  // Of the texts; nothing: their reward does not tell which it did not compare.
  std::optional<UnreadCounts> unread() const;

 private:
  void make_micro_batches();
  MicroBatch micro_batch(const Samples& texts, const ReductionSizes& sizes) const;

  const Communicator& world_;
  const TrainConfig& config_;
  const TrainingData& data_;
  Trainer& trainer_;
  RolloutWriter writer_;
  std::function<void()> heartbeat_;
  std::vector<RolloutText> texts_;
  std::vector<Samples> batches_;
  std::vector<MicroBatch> own_;
};

}  // namespace magister
