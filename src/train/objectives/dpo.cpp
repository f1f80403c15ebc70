// DPO. The loss of a pair depends on two sums of log-probabilities. So the gradient of a row is that of its cross
// entropy times minus the derivative of the loss by the sum of its sequence. The head is read once for the sums and
// once for the gradients, tile by tile.
#include <ATen/ATen.h>

#include <cmath>

#include "magister/core/error.h"
#include "train/objective_loss.h"

namespace magister {

LossSums dpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients) {
  HeadLossOptions options = pass.options;
  options.gradient = false;
  at::Tensor none;
  const HeadLossResult first = head_loss(pass.hidden_TD, pass.head, batch.targets, options, scale, none);
  const std::vector<SequenceSum> of = sequence_sums(batch, first.label_logprob_T);
  MAGISTER_ASSERT(of.size() == 2 * batch.pairs.size());
  LossSums sums;
  HeadLossTargets targets = batch.targets;
  targets.row_weight_T = at::zeros({targets.labels_T.size(0)}, at::kFloat);
  const auto weigh = [&](std::size_t sequence, double gradient) {
    const std::int64_t begin = batch.tokens.cu_seqlens[sequence], end = batch.tokens.cu_seqlens[sequence + 1];
    targets.row_weight_T.narrow(0, begin, end - begin).fill_(-gradient);
  };
  for (std::size_t i = 0; i < batch.pairs.size(); ++i) {
    const SequenceSum &chosen = of[2 * i], &rejected = of[2 * i + 1];
    const PairLoss pair =
        dpo_loss(pass.trainer.preference, {chosen.logprob - batch.pairs[i].chosen_reference, chosen.tokens},
                 {rejected.logprob - batch.pairs[i].rejected_reference, rejected.tokens});
    sums.loss += scale * pair.loss;
    add_rewards(sums.rewards, pair);
    weigh(2 * i, pair.chosen_gradient);
    weigh(2 * i + 1, pair.rejected_gradient);
  }
  if (!std::isfinite(sums.loss) || gradients == nullptr) return sums;
  options.gradient = true;
  const HeadLossResult second = head_loss(pass.hidden_TD, pass.head, targets, options, scale, gradients->head);
  gradients->hidden_TD = second.hidden_gradient_TD;
  return sums;
}

}  // namespace magister
