// Language models and distillation. Every token with a label has a loss, and so has every row that a teacher has
// scored.
#include "train/objective_loss.h"

namespace magister {

LossSums token_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients) {
  HeadLossTargets targets = batch.targets;
  if (batch.read_teacher) batch.read_teacher(targets);
  HeadLossOptions options = pass.options;
  options.gradient = gradients != nullptr;
  at::Tensor none;
  const HeadLossResult result = head_loss(pass.hidden_TD, pass.head, targets, options, scale,
                                          gradients != nullptr ? gradients->head : none, pass.pool);
  if (gradients != nullptr) gradients->hidden_TD = result.hidden_gradient_TD;
  LossSums sums;
  sums.loss = result.loss;
  return sums;
}

}  // namespace magister
