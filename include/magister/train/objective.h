// The objectives of a training. The loss of each is in src/train/objectives/, the data that it learns from in
// src/tasks/train/objectives/.
#pragma once

namespace magister {

enum class ObjectiveKind {
  kLm,       // every token from those before it
  kDistill,  // a teacher's rows
  kDpo,      // which of two answers was preferred, by their log-probabilities (preference_loss.h)
  kReward,   // the same, by a number that the model says of each answer
  kGrpo,     // texts of the policy's own, with an advantage each (policy_loss.h)
  kValue     // texts of a policy, with a label each that every row says (value_loss.h), or compared in pairs
};

}  // namespace magister
