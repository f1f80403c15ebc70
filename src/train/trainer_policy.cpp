// The trainer's part in GRPO; see trainer.h and policy_loss.h.
#include <ATen/ATen.h>

#include <cmath>

#include "magister/core/error.h"
#include "magister/train/trainer.h"
#include "magister/train/weights_file.h"

namespace magister {

// The gradient of a row is that of its cross entropy times minus the derivative of its loss by its log-probability. Where the texts
// are this policy's own and nothing is compared with a reference, no log-probability has to be known: the head is read once.
Trainer::Outcome Trainer::policy_losses(const MicroBatch& batch, const TrunkPass& pass, double scale,
                                        HeadGradients* gradients) const {
  const at::Tensor &old_T = batch.old_logprob_T, &reference_T = batch.reference_logprob_T;
  MAGISTER_ASSERT(batch.texts.size() + 1 == batch.tokens.cu_seqlens.size());
  const auto* labels = batch.targets.labels_T.const_data_ptr<std::int64_t>();
  const auto row = [](const at::Tensor& column_T, std::int64_t t) {
    return static_cast<double>(column_T.const_data_ptr<float>()[t]);
  };
  HeadLossOptions options = head_options();
  at::Tensor now_T, none;
  if (old_T.defined() || reference_T.defined()) {
    options.gradient = false;
    now_T = head_loss(pass.hidden_TD(), head(), batch.targets, options, scale, none).label_logprob_T;
    options.gradient = true;
  }
  Outcome outcome;
  HeadLossTargets targets = batch.targets;
  targets.row_weight_T = at::zeros({targets.labels_T.size(0)}, at::kFloat);
  auto* weights = targets.row_weight_T.data_ptr<float>();
  for (std::size_t s = 0; s < batch.texts.size(); ++s) {
    for (std::int64_t t = batch.tokens.cu_seqlens[s]; t < batch.tokens.cu_seqlens[s + 1]; ++t) {
      if (labels[t] < 0) continue;
      const double log_ratio = old_T.defined() ? row(now_T, t) - row(old_T, t) : 0;
      const PolicyToken token =
          policy_token(options_.policy, batch.texts[s].advantage, log_ratio,
                       reference_T.defined() ? std::optional(row(reference_T, t) - row(now_T, t)) : std::nullopt);
      outcome.loss += scale * batch.texts[s].token_weight * token.loss;
      outcome.policy.kl += token.kl;
      outcome.policy.clipped += token.clipped ? 1 : 0;
      weights[t] = static_cast<float>(-batch.texts[s].token_weight * token.gradient);
    }
  }
  if (!std::isfinite(outcome.loss) || gradients == nullptr) return outcome;
  gradients->hidden_TD =
      head_loss(pass.hidden_TD(), head(), targets, options, scale, gradients->head).hidden_gradient_TD;
  return outcome;
}

std::vector<at::Tensor> Trainer::label_logprobs(std::span<const MicroBatch> batches, bool of_reference,
                                                const std::function<void()>& heartbeat) {
  std::vector<at::Tensor> all(batches.size());
  send_weights();
  at::Tensor model = model_weights();
  if (of_reference && !lora_) {
    model = reference_.tensor();
    // On a GPU as long as it is asked: before the gradients.
    if (device_.has_gpu_code()) send(reference_.tensor(), model = at::Tensor());
  }
  MAGISTER_ASSERT(!of_reference || (options_.policy.beta != 0 && model.defined()));
  pass_pool().run(static_cast<std::int64_t>(batches.size()), [&](std::int64_t index, int) {
    const MicroBatch& batch = batches[static_cast<std::size_t>(index)];
    HeadLossOptions options = head_options();
    options.gradient = false;
    at::Tensor none;
    // Recomputing means that no graph is kept.
    const TrunkOptions trunk{true, options_.bf16, device_.has_gpu_code()};
    const TrunkPass pass = of_reference ? TrunkPass(layout_, model, batch.tokens, trunk) : pass_of(batch, true);
    const at::Tensor head_VD = layout_.view(model, layout_.head());
    all[static_cast<std::size_t>(index)] =
        head_loss(pass.hidden_TD(), head_VD, batch.targets, options, 1.0, none).label_logprob_T;
    if (heartbeat) heartbeat();
  });
  return all;
}

std::unique_ptr<TensorFile> Trainer::weights_file() {
  MAGISTER_ASSERT(options_.preference.objective == Objective::kGrpo);
  if (gpu_optimizer_) copies_.to_host(weights_there(), weights_here());
  return weights_as_file(layout_, model_.tensor(),
                         lora_ ? std::optional<LoraWeights>({*lora_, adapter_}) : std::nullopt);
}

}  // namespace magister
