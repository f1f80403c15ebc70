// Computed in f64: a pair is a few numbers.
#include "magister/train/preference_loss.h"

#include <algorithm>
#include <cmath>

namespace magister {
namespace {

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
// -ln s(x), exact for large x of either sign.
double minus_log_sigmoid(double x) { return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

PairLoss dpo_loss(const PreferenceOptions& options, const AnswerRatio& chosen, const AnswerRatio& rejected) {
  using Loss = PreferenceOptions::Loss;
  const double beta = options.beta, x = beta * (chosen.log_ratio - rejected.log_ratio);
  PairLoss pair{0, 0, 0, beta * chosen.log_ratio, beta * rejected.log_ratio};
  if (options.loss == Loss::kIpo) {
    const auto c = static_cast<double>(std::max<std::int64_t>(1, chosen.tokens));
    const auto r = static_cast<double>(std::max<std::int64_t>(1, rejected.tokens));
    const double off = chosen.log_ratio / c - rejected.log_ratio / r - 1 / (2 * beta);
    pair.loss = off * off;
    pair.chosen_gradient = 2 * off / c;
    pair.rejected_gradient = -2 * off / r;
    return pair;
  }
  double slope = 0;  // d loss / d x
  if (options.loss == Loss::kHinge) {
    pair.loss = std::isnan(x) ? x : std::max(0.0, 1 - x);
    slope = x < 1 ? -1 : 0;
  } else {
    const double e = options.loss == Loss::kRobust ? options.label_smoothing : 0;
    pair.loss = ((1 - e) * minus_log_sigmoid(x) - e * minus_log_sigmoid(-x)) / (1 - 2 * e);
    slope = (-(1 - e) * sigmoid(-x) - e * sigmoid(x)) / (1 - 2 * e);
  }
  pair.chosen_gradient = beta * slope;
  pair.rejected_gradient = -beta * slope;
  return pair;
}

PairLoss reward_loss(const PreferenceOptions& options, double chosen, double rejected, double margin) {
  const double x = chosen - rejected - margin, sum = chosen + rejected, c = options.center_rewards_coefficient;
  const double slope = -sigmoid(-x);
  return {minus_log_sigmoid(x) + c * sum * sum, slope + 2 * c * sum, -slope + 2 * c * sum, chosen, rejected};
}

}  // namespace magister
