// Computed in f64: a text is a few numbers, and a token one exponential or two.
#include "magister/train/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"

namespace magister {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

}  // namespace

PolicyToken policy_token(const PolicyOptions& options, double advantage, double log_ratio,
                         std::optional<double> above_policy) {
  const double ratio = std::exp(log_ratio);
  const double kept = std::clamp(ratio, 1 - options.epsilon, 1 + options.epsilon_high);
  PolicyToken token;
  token.clipped = (ratio > 1 + options.epsilon_high && advantage > 0) || (ratio < 1 - options.epsilon && advantage < 0);
  token.loss = -std::min(ratio * advantage, kept * advantage);
  token.gradient = token.clipped ? 0 : -ratio * advantage;
  if (std::isnan(ratio)) token.loss = token.gradient = ratio;
  if (above_policy) {
    const double e = std::exp(*above_policy);
    const double k3 = e - *above_policy - 1;
    // For the policy's own texts the ratio is 1, but its derivative is not 0: the expected gradient of k3 alone is that
    // of the other KL divergence.
    const double part = options.use_bias_correction_kl ? ratio : 1;
    token.kl = part * k3;
    token.loss += options.beta * token.kl;
    token.gradient += options.beta * (part * (1 - e) + (options.use_bias_correction_kl ? token.kl : 0));
  }
  return token;
}

std::vector<double> group_advantages(std::span<const double> rewards, std::uint64_t num_generations,
                                     RewardScale scale) {
  constexpr double kLeast = 1e-4;
  MAGISTER_ASSERT(num_generations > 1 && rewards.size() % num_generations == 0);
  std::vector<double> advantages(rewards.size(), 0.0);
  for (std::size_t begin = 0; begin < rewards.size(); begin += num_generations) {
    const auto group = rewards.subspan(begin, num_generations);
    // The mean of equal numbers may differ from them in the last digit, and dividing by 1e-4 would enlarge that ten
    // thousand times.
    if (std::all_of(group.begin(), group.end(), [&](double reward) { return reward == group.front(); })) continue;
    const double mean = mean_of(group);
    const double divisor = scale == RewardScale::kNone    ? 1.0
                           : scale == RewardScale::kBatch ? deviation_of(rewards) + kLeast
                                                          : deviation_of(group) + kLeast;
    for (std::size_t i = 0; i < group.size(); ++i) advantages[begin + i] = (group[i] - mean) / divisor;
  }
  return advantages;
}

double mean_group_deviation(std::span<const double> rewards, std::uint64_t num_generations) {
  double sum = 0;
  for (std::size_t begin = 0; begin < rewards.size(); begin += num_generations)
    sum += deviation_of(rewards.subspan(begin, num_generations));
  return sum * static_cast<double>(num_generations) / static_cast<double>(rewards.size());
}

double token_weight(PolicyReduction reduction, const ReductionSizes& sizes, std::uint64_t tokens,
                    std::uint64_t micro_batch_tokens) {
  const auto part = [](std::uint64_t a, std::uint64_t b) {
    return 1 / (static_cast<double>(a) * static_cast<double>(b));
  };
  switch (reduction) {
    case PolicyReduction::kGrpo:
      return part(sizes.num_texts, tokens);
    case PolicyReduction::kBnpo:
      return part(sizes.num_micro_batches, micro_batch_tokens);
    case PolicyReduction::kDrGrpo:
      return part(sizes.num_texts, sizes.most_tokens);
    case PolicyReduction::kDapo:
      break;
  }
  return part(sizes.num_tokens, 1);
}

}  // namespace magister
