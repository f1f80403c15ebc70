// The loss of a micro-batch and its gradients by the head and by the rows that the head reads. Each kind of loss is one
// function in src/train/objectives/. Language models and distillation share one, in which the teacher's rows may have
// weight 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/train/trainer.h"

namespace magister {

// Sums over one micro-batch; gathered over the ranks as raw bytes.
struct LossSums {
  double loss = 0;      // sum over the tokens, pairs or texts, times scale
  double finite = 1.0;  // 0: the loss or a gradient is not finite
  PairRewards rewards;  // sums over the pairs
  PolicyMeans policy;   // sums over the tokens
  ValueMeans value;     // sums over the texts
};

struct HeadGradients {
  at::Tensor hidden_TD;  // set by the loss
  at::Tensor head;       // the loss adds to it; undefined: the head is frozen
};

// The hidden states after the last norm, and the head that reads them.
struct HeadPass {
  const TrainerOptions& trainer;
  const at::Tensor& hidden_TD;
  at::Tensor head;
  HeadLossOptions options;
  at::Device device;
  ThreadPool* pool = nullptr;  // threads that no other pass uses; null: none
};

struct ObjectiveLoss {
  enum class Mean { kTokens, kItems, kOwnWeights };
  // gradients: nullptr: only the losses are computed. Local, any thread.
  LossSums (*losses)(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
  Mean mean = Mean::kTokens;  // over the tokens of a step, over its pairs or texts, or each text has its own weight
  bool has_labels = true;     // false: all tokens that it reads count as learnt
};
const ObjectiveLoss& objective_loss(const TrainerOptions& options);

LossSums token_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums dpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums reward_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums grpo_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);
LossSums value_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients);

// Number of tokens that a step learns from, over all ranks. Collective over world.
std::uint64_t step_tokens(const ObjectiveLoss& loss, std::span<const MicroBatch> own, const Communicator& world);
// The factor of every loss of a step. Collective over world.
double step_scale(const ObjectiveLoss& loss, std::span<const MicroBatch> own, std::uint64_t tokens,
                  const Communicator& world);

struct SequenceSum {
  double logprob = 0;
  std::int64_t tokens = 0;  // number of tokens with a label
};
// Sums for each sequence. Every row with a label has a log-probability; it is not finite if a logit is not.
std::vector<SequenceSum> sequence_sums(const MicroBatch& batch, const at::Tensor& label_logprob_T);

void add_rewards(PairRewards& sum, const PairLoss& pair);

}  // namespace magister
