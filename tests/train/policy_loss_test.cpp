// GRPO to values of TRL's formulas, computed by hand with torch, and derivatives by finite differences.
#include "magister/train/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>

namespace magister {
namespace policy_loss_test {

TEST(PolicyLoss, GoldenValues) {
  PolicyOptions options;
  options.beta = 1;
  const double k3[][2] = {{0.3, .04986}, {-0.2, .01873}, {0, 0}};
  for (const auto& [above, value] : k3) EXPECT_NEAR(policy_token(options, 0, 0, above).kl, value, 1e-5);
  // The same loss where the texts are the policy's own, and the gradient of the divergence itself: k3 more.
  EXPECT_NEAR(policy_token(options, 0, 0, 0.3).gradient, 1 - std::exp(0.3) + .04986, 1e-5);
  EXPECT_NEAR(policy_token(options, 0, 0.5, 0.3).kl, std::exp(0.5) * .04986, 1e-5);
  options.use_bias_correction_kl = false;
  for (const auto& [above, value] : k3) EXPECT_NEAR(policy_token(options, 0, 0.5, above).kl, value, 1e-5);
  EXPECT_NEAR(policy_token(options, 0, 0.5, 0.3).gradient, 1 - std::exp(0.3), 1e-12);
  const std::vector<double> advantages = group_advantages(std::vector<double>{1, 0, 0, 1}, 4, RewardScale::kGroup);
  EXPECT_NEAR(advantages[0], 0.8659, 5e-5);
  EXPECT_NEAR(advantages[1], -0.8659, 5e-5);
  // On the policy the derivative is REINFORCE's.
  const PolicyToken token = policy_token(PolicyOptions(), 0.8659, 0, std::nullopt);
  EXPECT_EQ(token.loss, -0.8659);
  EXPECT_EQ(token.gradient, -0.8659);
  EXPECT_FALSE(token.clipped);
}

TEST(PolicyLoss, DerivativesByFiniteDifferences) {
  PolicyOptions options;
  options.epsilon = 0.1;
  options.epsilon_high = 0.3;
  options.beta = 0.4;
  int clipped = 0;
  for (const double advantage : {1.7, -0.6, 0.0}) {
    for (const double log_ratio : {-1.5, -0.2, -0.05, 0.0, 0.2, 0.4, 2.0}) {
      options.use_bias_correction_kl = !options.use_bias_correction_kl;  // both of every advantage
      for (const double above : {-0.7, 0.0, 1.2}) {
        const PolicyToken token = policy_token(options, advantage, log_ratio, above);
        constexpr double kStep = 1e-6;  // the reference stays where it is when the policy moves
        const double more = policy_token(options, advantage, log_ratio + kStep, above - kStep).loss;
        const double less = policy_token(options, advantage, log_ratio - kStep, above + kStep).loss;
        EXPECT_NEAR(token.gradient, (more - less) / (2 * kStep), 1e-6) << advantage << " " << log_ratio << " " << above;
        clipped += token.clipped ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(clipped, 3 * (2 + 2));  // of the better text above 1.3, of the worse one below 0.9
  EXPECT_TRUE(std::isnan(policy_token(options, 1, std::nan(""), std::nullopt).loss));
}

TEST(PolicyLoss, EqualRewardsHaveNoAdvantage) {
  const double tenth = 0.1;
  EXPECT_NE((tenth + tenth + tenth) / 3, tenth);
  for (const RewardScale scale : {RewardScale::kGroup, RewardScale::kBatch, RewardScale::kNone}) {
    const std::vector<double> advantages =
        group_advantages(std::vector<double>{tenth, tenth, tenth, 1, 2, 6}, 3, scale);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(advantages[i], 0);
    const double divisor = scale == RewardScale::kNone    ? 1
                           : scale == RewardScale::kGroup ? std::sqrt(7.0) + 1e-4
                                                          : std::sqrt(5.323) + 1e-4;
    EXPECT_NEAR(advantages[5], 3 / divisor, 1e-3);
  }
  EXPECT_NEAR(mean_group_deviation(std::vector<double>{tenth, tenth, tenth, 1, 2, 6}, 3), std::sqrt(7.0) / 2, 1e-12);
}

TEST(PolicyLoss, PartsOfAStep) {
  // Texts of 2, 3 and 5 tokens; the first two in one micro-batch.
  const ReductionSizes sizes{3, 10, 2, 8};
  using R = PolicyReduction;
  const std::uint64_t tokens[] = {2, 3, 5}, beside[] = {5, 5, 5};
  double sums[4] = {0, 0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    const auto n = static_cast<double>(tokens[i]);
    for (const R r : {R::kGrpo, R::kBnpo, R::kDrGrpo, R::kDapo})
      sums[static_cast<int>(r)] += n * token_weight(r, sizes, tokens[i], beside[i]);
  }
  EXPECT_NEAR(sums[static_cast<int>(R::kGrpo)], 1, 1e-12);
  EXPECT_NEAR(sums[static_cast<int>(R::kBnpo)], 1, 1e-12);
  EXPECT_NEAR(sums[static_cast<int>(R::kDrGrpo)], 10.0 / 24, 1e-12);
  EXPECT_NEAR(sums[static_cast<int>(R::kDapo)], 1, 1e-12);
  EXPECT_NEAR(token_weight(R::kGrpo, sizes, 2, 5), 1.0 / 6, 1e-12);
  EXPECT_NEAR(token_weight(R::kBnpo, sizes, 2, 5), 1.0 / 10, 1e-12);
}

}  // namespace policy_loss_test
}  // namespace magister
