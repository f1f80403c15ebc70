// Reward models, and value models that learn from pairs. A reward is the dot product, in f64, of a row and the only row
// of the head.
#include <ATen/ATen.h>

#include <utility>

#include "train/objective_loss.h"

namespace magister {

LossSums reward_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients) {
  const at::Tensor weight_D = pass.head.select(0, 0);
  if (gradients != nullptr) gradients->hidden_TD = at::zeros_like(pass.hidden_TD);
  const auto reward = [&](std::int64_t row) {
    return at::dot(pass.hidden_TD.select(0, row).to(at::kDouble), weight_D.to(at::kDouble)).item<double>();
  };
  LossSums sums;
  for (const Pair& given : batch.pairs) {
    const PairLoss pair =
        reward_loss(pass.trainer.preference, reward(given.chosen_row), reward(given.rejected_row), given.margin);
    sums.loss += scale * pair.loss;
    add_rewards(sums.rewards, pair);
    if (gradients == nullptr) continue;
    for (const auto& [row, gradient] :
         {std::pair(given.chosen_row, pair.chosen_gradient), std::pair(given.rejected_row, pair.rejected_gradient)}) {
      gradients->hidden_TD.select(0, row).add_(weight_D, scale * gradient);
      gradients->head.select(0, 0).add_(pass.hidden_TD.select(0, row), scale * gradient);
    }
  }
  return sums;
}

}  // namespace magister
