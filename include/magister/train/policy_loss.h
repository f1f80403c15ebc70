// Losses of GRPO: a policy learns from texts that it wrote itself, each better or worse than the others of its prompt. What a token's loss
// is, its derivative by the token's log-probability, how far a text is from its group's mean, and what part a token has in a step.
// Formulas, names and defaults as TRL's GRPOTrainer has them. Sources: GRPO, arXiv 2402.03300; DAPO, 2503.14476; Dr. GRPO, 2503.20783; the
// estimate k3 of the KL divergence: J. Schulman, "Approximating KL divergence" (2020).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace magister {

struct PolicyOptions {
  double epsilon = 0.2,
         epsilon_high = 0.2;  // the ratio of new to old probability counts between 1 - epsilon and 1 + epsilon_high
  double beta = 0;            // of k3 against the weights that the training began with; 0: they are not kept
  bool use_bias_correction_kl = true;  // k3 counts times the ratio, with which its gradient is the divergence's own
  double temperature = 1;              // that the texts were drawn with: divides the logits of every log-probability
};

struct PolicyToken {
  double loss = 0, gradient = 0;  // by the log-probability; without the token's part in the step
  double kl = 0;                  // k3, nats, times the ratio where it is corrected; 0 without a reference
  bool clipped =
      false;  // the ratio is where it has no gradient: a better text gained enough, or a worse one lost enough
};
// log_ratio: log-probability now less that when the text was written. above_policy: the reference's less that now; nothing: no
// reference. -min(r A, clip(r) A) + beta r k3 with r = exp(log_ratio) and k3 = exp(x) - x - 1, x = above_policy; without the correction beta k3.
PolicyToken policy_token(const PolicyOptions& options, double advantage, double log_ratio,
                         std::optional<double> above_policy);

// What a group's advantages are divided by: its rewards' standard deviation, that of all rewards of the step, or nothing.
enum class RewardScale { kGroup, kBatch, kNone };
// Rewards in groups of num_generations. (reward - the group's mean) / (deviation + 1e-4), the deviation unbiased (n - 1). Exactly 0 in a
// group whose rewards are equal.
std::vector<double> group_advantages(std::span<const double> rewards, std::uint64_t num_generations, RewardScale scale);
// Mean over the groups of their standard deviations, unbiased.
double mean_group_deviation(std::span<const double> rewards, std::uint64_t num_generations);

// How the tokens' losses become one: kGrpo the mean over texts of each one's mean; kBnpo the mean over micro-batches of each one's mean
// over its tokens; kDrGrpo the sum over all tokens / (texts * most tokens of a text); kDapo the mean over all tokens of the step.
enum class PolicyReduction { kGrpo, kBnpo, kDrGrpo, kDapo };
struct ReductionSizes {
  std::uint64_t num_texts = 0, num_tokens = 0, num_micro_batches = 0, most_tokens = 0;  // of the step; of a text
};
// Part of every token of a text of `tokens` tokens, in a micro-batch of `micro_batch_tokens`.
double token_weight(PolicyReduction reduction, const ReductionSizes& sizes, std::uint64_t tokens,
                    std::uint64_t micro_batch_tokens);

}  // namespace magister
