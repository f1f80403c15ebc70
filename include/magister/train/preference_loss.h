// Losses of pairs of answers of which one was preferred, and their derivatives by the one number that a model gives
// each answer: with DPO the log-probability of its tokens, with a reward model the reward. The derivatives reach the
// layers through head_loss (train/head_loss.h) as weights of the answers' rows, or through the row that a reward is
// read from.
// Formulas and names follow TRL's DPOTrainer and RewardTrainer. Sources: DPO, arXiv 2305.18290; IPO, 2310.12036; robust
// DPO, 2403.00409.
#pragma once

#include <cstdint>

namespace magister {

struct PreferenceOptions {
  // With D = (policy - reference of the chosen answer) - (the same of the rejected one), log-probabilities summed over
  // an answer's tokens:
  //   kSigmoid  -ln s(beta D)              kHinge  max(0, 1 - beta D)
  //   kIpo      (D' - 1 / (2 beta))^2, D' of means over the answers' tokens
  //   kRobust   (-(1 - e) ln s(beta D) + e ln s(-beta D)) / (1 - 2 e), e = label_smoothing: the part of wrong labels
  enum class Loss { kSigmoid, kHinge, kIpo, kRobust };
  Loss loss = Loss::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;             // kRobust, below 0.5
  double center_rewards_coefficient = 0;  // kReward
};

struct PairLoss {
  double loss = 0;
  double chosen_gradient = 0, rejected_gradient = 0;  // by the log-probability or the reward
  double chosen_reward = 0, rejected_reward = 0;      // DPO: beta * (policy - reference)
};

// An answer in DPO: its log-probability minus the reference's, nats, and its number of tokens.
struct AnswerRatio {
  double log_ratio = 0;
  std::int64_t tokens = 0;
};
PairLoss dpo_loss(const PreferenceOptions& options, const AnswerRatio& chosen, const AnswerRatio& rejected);

// Bradley-Terry: -ln s(chosen - rejected - margin) + center_rewards_coefficient * (chosen + rejected)^2.
PairLoss reward_loss(const PreferenceOptions& options, double chosen, double rejected, double margin);

}  // namespace magister
