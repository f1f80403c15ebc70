// The functions that GRPO needs in addition to steps: log-probabilities, also by the reference, and the weights to
// generate texts with; see trainer.h.
#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/train/trainer.h"
#include "magister/train/weights_file.h"

namespace magister {

std::vector<at::Tensor> Trainer::label_logprobs(std::span<const MicroBatch> batches, bool of_reference,
                                                const std::function<void()>& heartbeat) {
  std::vector<at::Tensor> all(batches.size());
  send_weights();
  at::Tensor model = model_weights();
  if (of_reference && !lora_) {
    model = reference_.tensor();
    // A GPU holds the reference only during this call, before gradients exist.
    if (device_.has_gpu_code()) send(reference_.tensor(), model = at::Tensor());
  }
  MAGISTER_ASSERT(!of_reference || (options_.policy.beta != 0 && model.defined()));
  pass_pool().run(static_cast<std::int64_t>(batches.size()), [&](std::int64_t index, int) {
    const MicroBatch& batch = batches[static_cast<std::size_t>(index)];
    HeadLossOptions options = head_options();
    options.gradient = false;
    at::Tensor none;
    // With recomputation no graph is kept.
    const TrunkOptions trunk{true, options_.bf16, device_.has_gpu_code()};
    const TrunkPass pass = of_reference ? TrunkPass(layout_, model, batch.tokens, trunk) : pass_of(batch, true);
    all[static_cast<std::size_t>(index)] =
        head_loss(head_rows(pass.hidden_TD()), head_of(model), batch.targets, options, 1.0, none).label_logprob_T;
    if (heartbeat) heartbeat();
  });
  return all;
}

std::unique_ptr<TensorFile> Trainer::weights_file() {
  MAGISTER_ASSERT(options_.objective == ObjectiveKind::kGrpo);
  send_weights();
  return weights_as_file(layout_, model_weights(),
                         lora_ ? std::optional<LoraWeights>({*lora_, adapter_weights()}) : std::nullopt,
                         device_.queue());
}

}  // namespace magister
