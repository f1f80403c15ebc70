// Losses of GRPO: a policy learns from texts that it wrote itself, each better or worse than the others of its prompt.
// This file has a token's loss and its derivative by the token's log-probability, the advantage of a text in its group,
// and the weight of a token in a step.
// Formulas, names and defaults follow TRL's GRPOTrainer. Sources: GRPO, arXiv 2402.03300; DAPO, 2503.14476; Dr. GRPO,
// 2503.20783; the estimate k3 of the KL divergence: J. Schulman, "Approximating KL divergence" (2020).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace magister {

struct PolicyOptions {
  // The ratio of new to old probability counts only between 1 - epsilon and 1 + epsilon_high.
  double epsilon = 0.2, epsilon_high = 0.2;
  double beta = 0;  // weight of k3 against the weights at the start of the training; 0: those are not kept
  bool use_bias_correction_kl = true;  // k3 is multiplied by the ratio, so that its gradient is that of the divergence
  double temperature = 1;              // of sampling: divides the logits of every log-probability
};

struct PolicyToken {
  double loss = 0, gradient = 0;  // by the log-probability; without the token's weight in the step
  double kl = 0;                  // k3, nats, times the ratio if corrected; 0 without a reference
  // The ratio has no gradient here: a better text gained enough, or a worse one lost enough.
  bool clipped = false;
};
// log_ratio: log-probability now minus that when the text was written. above_policy: log-probability by the reference
// minus that now; nothing: no reference. The loss is -min(r A, clip(r) A) + beta r k3 with r = exp(log_ratio) and
// k3 = exp(x) - x - 1, x = above_policy; without the correction the last term is beta k3.
PolicyToken policy_token(const PolicyOptions& options, double advantage, double log_ratio,
                         std::optional<double> above_policy);

// Divisor of a group's advantages: its rewards' standard deviation, that of all rewards of the step, or none.
enum class RewardScale { kGroup, kBatch, kNone };
// Rewards are in groups of num_generations. Returns (reward - the group's mean) / (deviation + 1e-4), with the unbiased
// deviation (n - 1); kNone: undivided. Exactly 0 in a group whose rewards are equal.
std::vector<double> group_advantages(std::span<const double> rewards, std::uint64_t num_generations, RewardScale scale);
// Mean over the groups of their unbiased standard deviations.
double mean_group_deviation(std::span<const double> rewards, std::uint64_t num_generations);

// Reductions of the tokens' losses: kGrpo is the mean over texts of the mean over their tokens; kBnpo the mean over
// micro-batches of the mean over their tokens; kDrGrpo the sum over all tokens / (num_texts * most_tokens); kDapo the
// mean over all tokens of the step.
enum class PolicyReduction { kGrpo, kBnpo, kDrGrpo, kDapo };
struct ReductionSizes {
  // Sizes of a step; most_tokens: the most that a text may have.
  std::uint64_t num_texts = 0, num_tokens = 0, num_micro_batches = 0, most_tokens = 0;
};
// Weight of every token of a text of `tokens` tokens, in a micro-batch of `micro_batch_tokens`.
double token_weight(PolicyReduction reduction, const ReductionSizes& sizes, std::uint64_t tokens,
                    std::uint64_t micro_batch_tokens);

}  // namespace magister
