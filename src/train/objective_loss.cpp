// See objective_loss.h.
#include "train/objective_loss.h"

#include <ATen/ATen.h>

namespace magister {

const ObjectiveLoss& objective_loss(const TrainerOptions& options) {
  using Mean = ObjectiveLoss::Mean;
  static const ObjectiveLoss tokens{token_losses}, dpo{dpo_losses, Mean::kItems},
      reward{reward_losses, Mean::kItems, false}, grpo{grpo_losses, Mean::kOwnWeights},
      value{value_losses, Mean::kItems, false};
  switch (options.objective) {
    case ObjectiveKind::kDpo:
      return dpo;
    case ObjectiveKind::kReward:
      return reward;
    case ObjectiveKind::kGrpo:
      return grpo;
    case ObjectiveKind::kValue:
      return options.value.loss == ValueOptions::Loss::kPreference ? reward : value;
    case ObjectiveKind::kLm:
    case ObjectiveKind::kDistill:
      break;
  }
  return tokens;
}

std::uint64_t step_tokens(const ObjectiveLoss& loss, std::span<const MicroBatch> own, const Communicator& world) {
  std::uint64_t count = 0;
  for (const MicroBatch& batch : own) {
    const at::Tensor& labels_T = batch.targets.labels_T;
    count +=
        static_cast<std::uint64_t>(loss.has_labels ? (labels_T >= 0).sum().item<std::int64_t>() : labels_T.numel());
  }
  return world.sum(count);
}

double step_scale(const ObjectiveLoss& loss, std::span<const MicroBatch> own, std::uint64_t tokens,
                  const Communicator& world) {
  if (loss.mean == ObjectiveLoss::Mean::kOwnWeights) return 1.0;
  if (loss.mean == ObjectiveLoss::Mean::kTokens) return 1.0 / static_cast<double>(tokens);
  std::uint64_t items = 0;
  for (const MicroBatch& batch : own) items += batch.pairs.size() + batch.values.size();
  return 1.0 / static_cast<double>(world.sum(items));
}

std::vector<SequenceSum> sequence_sums(const MicroBatch& batch, const at::Tensor& label_logprob_T) {
  const auto* labels = batch.targets.labels_T.const_data_ptr<std::int64_t>();
  const auto* logprobs = label_logprob_T.const_data_ptr<float>();
  const std::vector<std::int64_t>& begins = batch.tokens.cu_seqlens;
  std::vector<SequenceSum> sums(begins.size() - 1);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    for (std::int64_t t = begins[s]; t < begins[s + 1]; ++t) {
      if (labels[t] < 0) continue;
      sums[s].logprob += logprobs[t];
      ++sums[s].tokens;
    }
  }
  return sums;
}

void add_rewards(PairRewards& sum, const PairLoss& pair) {
  sum.chosen += pair.chosen_reward;
  sum.rejected += pair.rejected_reward;
  sum.accuracy += pair.chosen_reward > pair.rejected_reward ? 1 : 0;
}

}  // namespace magister
