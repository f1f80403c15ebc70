// What a micro-batch loses, and what that says of the head and of the rows before it: one function for each kind of
// loss, in src/train/objectives/. A language model and a distillation have one loss, in which the teacher's rows may
// weigh nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/train/trainer.h"

namespace magister {

// Of one micro-batch; gathered over the ranks as it stands in memory.
struct LossSums {
  double loss = 0;      // sum over the tokens, pairs or texts, times scale
  double finite = 1.0;  // 0: the loss or a gradient is not
  PairRewards rewards;  // sums over the pairs
  PolicyMeans policy;   // sums over the tokens
  ValueMeans value;     // sums over the texts
};

struct HeadGradients {
  at::Tensor hidden_TD;  // made
  at::Tensor head;       // added to; undefined: the head is frozen
};

// The rows behind the last norm, and the head that reads them.
struct HeadPass {
  const TrainerOptions& trainer;
  const at::Tensor& hidden_TD;
  at::Tensor head;
  HeadLossOptions options;
  at::Device device;
  ThreadPool* pool = nullptr;  // threads that nobody else uses; null: none
};

struct ObjectiveLoss {
  enum class Mean { kTokens, kItems, kOwnWeights };
  // gradients: nullptr: the losses alone. Local, any thread.
  LossSums (*losses)(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
  Mean mean =
      Mean::kTokens;       // of a step: over its tokens, over its pairs or texts, or every text brings its own weight
  bool has_labels = true;  // else it learns from all tokens that it reads
};
const ObjectiveLoss& objective_loss(const TrainerOptions& options);

LossSums token_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums dpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums reward_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums grpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums value_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);

// Tokens of a step that are learnt from, over all ranks. Collective over world.
std::uint64_t step_tokens(const ObjectiveLoss& loss, std::span<const MicroBatch> own, const Communicator& world);
// What every loss of a step is multiplied by. Collective over world.
double step_scale(const ObjectiveLoss& loss, std::span<const MicroBatch> own, std::uint64_t tokens,
                  const Communicator& world);

struct SequenceSum {
  double logprob = 0;
  std::int64_t tokens = 0;  // that have a label
};
// By sequence. A row with a label has a log-probability, which is not finite where a logit is not.
std::vector<SequenceSum> sequence_sums(const MicroBatch& batch, const at::Tensor& label_logprob_T);

void add_rewards(PairRewards& sum, const PairLoss& pair);

}  // namespace magister
