// GRPO. The gradient of a row is that of its cross entropy times minus the derivative of its loss by its
// log-probability. If the texts are from the current weights and there is no reference, the log-probabilities are not
// needed, and the head is read only once.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "magister/core/error.h"
#include "train/objective_loss.h"

namespace magister {

LossSums grpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients) {
  const at::Tensor &old_T = batch.old_logprob_T, &reference_T = batch.reference_logprob_T;
  MAGISTER_ASSERT(batch.texts.size() + 1 == batch.tokens.cu_seqlens.size());
  const auto* labels = batch.targets.labels_T.const_data_ptr<std::int64_t>();
  const auto row = [](const at::Tensor& column_T, std::int64_t t) {
    return static_cast<double>(column_T.const_data_ptr<float>()[t]);
  };
  HeadLossOptions options = pass.options;
  at::Tensor now_T, none;
  if (old_T.defined() || reference_T.defined()) {
    options.gradient = false;
    now_T = head_loss(pass.hidden_TD, pass.head, batch.targets, options, scale, none).label_logprob_T;
    options.gradient = true;
  }
  LossSums sums;
  HeadLossTargets targets = batch.targets;
  targets.row_weight_T = at::zeros({targets.labels_T.size(0)}, at::kFloat);
  auto* weights = targets.row_weight_T.data_ptr<float>();
  for (std::size_t s = 0; s < batch.texts.size(); ++s) {
    for (std::int64_t t = batch.tokens.cu_seqlens[s]; t < batch.tokens.cu_seqlens[s + 1]; ++t) {
      if (labels[t] < 0) continue;
      const double log_ratio = old_T.defined() ? row(now_T, t) - row(old_T, t) : 0;
      const PolicyToken token =
          policy_token(pass.trainer.policy, batch.texts[s].advantage, log_ratio,
                       reference_T.defined() ? std::optional(row(reference_T, t) - row(now_T, t)) : std::nullopt);
      sums.loss += scale * batch.texts[s].token_weight * token.loss;
      sums.policy.kl += token.kl;
      sums.policy.clipped += token.clipped ? 1 : 0;
      weights[t] = static_cast<float>(-batch.texts[s].token_weight * token.gradient);
    }
  }
  if (!std::isfinite(sums.loss) || gradients == nullptr) return sums;
  gradients->hidden_TD =
      head_loss(pass.hidden_TD, pass.head, targets, options, scale, gradients->head).hidden_gradient_TD;
  return sums;
}

}  // namespace magister
