// Losses of pairs to values of TRL's formulas, computed by hand with torch, and derivatives by finite differences.
#include "magister/train/preference_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace magister {
namespace preference_loss_test {

using Loss = PreferenceOptions::Loss;

PreferenceOptions options_of(Loss loss, double smoothing = 0) {
  PreferenceOptions options;
  options.loss = loss;
  options.label_smoothing = smoothing;
  return options;
}

TEST(PreferenceLoss, GoldenValues) {
  struct Case {
    Loss loss;
    double smoothing, at_half, at_minus_two;
  };
  for (const Case& c : {Case{Loss::kSigmoid, 0, .668460, .798139}, Case{Loss::kHinge, 0, .95, 1.2},
                        Case{Loss::kIpo, 0, 20.25, 49}, Case{Loss::kRobust, .1, .662210, .823139}}) {
    const PreferenceOptions options = options_of(c.loss, c.smoothing);
    EXPECT_NEAR(dpo_loss(options, {0.25, 1}, {-0.25, 1}).loss, c.at_half, 1e-6);
    EXPECT_NEAR(dpo_loss(options, {-3, 1}, {-1, 1}).loss, c.at_minus_two, 1e-6);
  }
  const PairLoss start = dpo_loss(options_of(Loss::kSigmoid), {0, 7}, {0, 3});
  EXPECT_NEAR(start.loss, std::log(2.0), 1e-15);
  EXPECT_EQ(start.chosen_reward, 0);
  // Rewards are beta times the ratio, whatever the loss.
  const PairLoss ipo = dpo_loss(options_of(Loss::kIpo), {6, 3}, {-4, 2});
  EXPECT_NEAR(ipo.loss, (2 + 2 - 5) * (2 + 2 - 5), 1e-12);
  EXPECT_NEAR(ipo.chosen_reward, 0.6, 1e-12);
  EXPECT_NEAR(ipo.rejected_reward, -0.4, 1e-12);
}

TEST(PreferenceLoss, NoOverflowFarOut) {
  const PreferenceOptions options = options_of(Loss::kSigmoid);
  EXPECT_NEAR(dpo_loss(options, {-2e4, 9}, {2e4, 9}).loss, 4e3, 1e-9);
  EXPECT_EQ(dpo_loss(options, {2e4, 9}, {-2e4, 9}).loss, 0);
  EXPECT_NEAR(dpo_loss(options, {-2e4, 9}, {2e4, 9}).chosen_gradient, -0.1, 1e-12);
  for (const Loss loss : {Loss::kSigmoid, Loss::kHinge, Loss::kIpo, Loss::kRobust}) {
    EXPECT_FALSE(std::isfinite(dpo_loss(options_of(loss), {std::nan(""), 2}, {0, 2}).loss));
    EXPECT_FALSE(std::isfinite(dpo_loss(options_of(loss), {-std::numeric_limits<double>::infinity(), 2}, {0, 2}).loss));
  }
}

void expect_derivatives(const std::function<PairLoss(double, double)>& loss, double a, double b) {
  constexpr double h = 1e-5;
  const PairLoss at = loss(a, b);
  EXPECT_NEAR(at.chosen_gradient, (loss(a + h, b).loss - loss(a - h, b).loss) / (2 * h), 1e-7);
  EXPECT_NEAR(at.rejected_gradient, (loss(a, b + h).loss - loss(a, b - h).loss) / (2 * h), 1e-7);
}

TEST(PreferenceLoss, DerivativesByFiniteDifferences) {
  for (const auto& [a, b] : {std::pair(0.3, -2.0), std::pair(-4.0, 1.5), std::pair(30.0, 2.0)}) {
    for (const Loss loss : {Loss::kSigmoid, Loss::kHinge, Loss::kIpo, Loss::kRobust}) {
      PreferenceOptions options = options_of(loss, 0.2);
      options.beta = 0.3;
      expect_derivatives([&](double c, double r) { return dpo_loss(options, {c, 5}, {r, 3}); }, a, b);
    }
    PreferenceOptions options;
    options.center_rewards_coefficient = 0.02;
    expect_derivatives([&](double c, double r) { return reward_loss(options, c, r, 0.7); }, a, b);
  }
}

TEST(PreferenceLoss, Rewards) {
  PreferenceOptions options;
  EXPECT_NEAR(reward_loss(options, 1, 0.5, 0).loss, std::log1p(std::exp(-0.5)), 1e-15);
  EXPECT_NEAR(reward_loss(options, 1, 0.5, 2).loss, std::log1p(std::exp(1.5)), 1e-15);
  options.center_rewards_coefficient = 0.1;
  EXPECT_NEAR(reward_loss(options, 1, 0.5, 0).loss, std::log1p(std::exp(-0.5)) + 0.225, 1e-15);
}

}  // namespace preference_loss_test
}  // namespace magister
