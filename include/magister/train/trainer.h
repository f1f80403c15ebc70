// Trainer: the weights, the optimizer and the steps of a training on data-parallel ranks, each with a whole copy of the weights and, with ZeRO-1,
// its part of the optimizer. A step's micro-batches are a
// function of config and data; several are computed at once, one a thread, and their gradients are summed by GradientTree: the loss
// sequence and the weights are bit for bit the same on any number of ranks and threads, unless fast sums are asked for. It knows no file but the model's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/gpu_optimizer.h"
#include "magister/train/head_loss.h"
#include "magister/train/host_weights.h"
#include "magister/train/lora.h"
#include "magister/train/memory_ladder.h"
#include "magister/train/micro_gradient.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "magister/train/policy_loss.h"
#include "magister/train/preference_loss.h"
#include "magister/train/staged_copies.h"
#include "magister/train/training_device.h"
#include "magister/train/trunk.h"
#include "magister/train/value_loss.h"

namespace magister {

// Two sequences of a batch, 2i the chosen and 2i + 1 the rejected answer of pair i, each with its prompt.
struct Pair {
  double chosen_reference = 0, rejected_reference = 0;  // of DPO: log-probabilities by the reference model, nats
  double margin = 0;                                    // of a reward model
  std::int64_t chosen_row = 0, rejected_row = 0;        // rows of the batch that the rewards are read from
};

// A sequence of a batch of GRPO: a prompt, and behind it the text that was written, whose tokens have labels.
struct PolicyText {
  double advantage = 0;
  double token_weight = 0;  // of each of its tokens in the step's loss
};

struct MicroBatch {
  TrainBatch tokens;
  HeadLossTargets targets;
  std::vector<Pair> pairs{};        // of DPO, where targets has the answers' labels, and of reward models
  std::vector<PolicyText> texts{};  // of GRPO, by sequence
  std::vector<ValueText> values{};  // of value models, by sequence
  // Of GRPO, as label_logprobs() gives them, f32: when the texts were written, undefined: they are these weights' own; and by the reference,
  // undefined: there is none.
  at::Tensor old_logprob_T{}, reference_logprob_T{};
  // Fills in the teacher's rows, which are large, when the micro-batch is computed; empty: there are none. Any thread.
  std::function<void(HeadLossTargets&)> read_teacher{};
};

struct TrainerOptions {
  OptimizerOptions optimizer;
  DistillOptions distill;        // of `lm` and DPO: weight 0, lm_weight 1
  PreferenceOptions preference;  // of pairs; its objective is that of the training
  PolicyOptions policy;          // of GRPO
  ValueOptions value;            // of value models
  NewHead new_head;              // of a reward or value model that begins as a language model
  bool recompute = false;        // gradient checkpointing by layer
  int passes_at_once = 0;        // micro-batches, at most, where memory is short; 0: one a thread
  bool bf16 = false;  // products of the layers in bf16, as TrunkOptions has it; weights, sums and the optimizer are f32
  bool fast_sums = false;          // gradients of the ranks are added in any order
  bool divides_optimizer = false;  // ZeRO-1: each rank has its part of the moments, and updates its part of the weights
  std::optional<LoraOptions> lora;  // train an adapter's factors instead of the model's weights
  std::optional<gpu::Queue> gpu;    // whose code runs the passes, see TrainingDevice
  bool sums_on_gpu =
      false;  // a rank's own micro-batches are added up there, where that many gradients fit; the same bits
  bool optimizer_on_gpu = false;  // trained weights and moments stand there and are updated there; the same bits
};

// Means over the pairs of a step.
struct PairRewards {
  double chosen = 0, rejected = 0;
  double accuracy = 0;  // part of the pairs whose chosen answer has the higher reward
};

// Means over the tokens of a step of GRPO.
struct PolicyMeans {
  double kl = 0;       // k3 against the reference, nats
  double clipped = 0;  // part of the tokens whose ratio has no gradient
};

// Means over the texts of a step of a value model.
struct ValueMeans {
  double label = 0, value = 0;  // what the texts were worth, and what the model expected of them
};

struct StepResult {
  double loss = 0;           // mean over the tokens that are learnt from, or over the pairs
  PairRewards rewards;       // of pairs
  PolicyMeans policy;        // of GRPO
  ValueMeans value;          // of value models
  double grad_norm = 0;      // before clipping
  bool skipped = false;      // loss or gradient was not finite: weights and moments are as before
  std::uint64_t tokens = 0;  // that are learnt from, over all ranks
  // Micro-batches of the step, by number over all ranks, whose loss or gradient was not finite.
  std::vector<std::uint64_t> not_finite;
};

// Of a held-out micro-batch, sums over its labels or pairs.
struct HeldOutSums {
  double loss = 0;  // nats
  PairRewards rewards;
};

class Trainer {
 public:
  // Reads the weights. world is kept by reference; the layout is copied. num_threads: micro-batches at once, on a GPU the host's threads alone.
  // Collective over world.
  Trainer(const ParameterLayout& layout, const TensorFile& file, const TrainerOptions& options,
          const Communicator& world, int num_threads);

  // Loss and gradient of a step over all ranks. own: this rank's micro-batches (micro_batches_of); heartbeat: called between them, any
  // thread. The sum of the gradients of sum(loss) / tokens (or / pairs) is left in `gradient`, this rank's part of it (shards()), undefined where a
  // loss or a gradient is not finite. Collective over world.
  StepResult differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, at::Tensor& gradient,
                           const std::function<void()>& heartbeat = {});
  // differentiate, clip, update. Collective over world.
  StepResult step(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, double lr,
                  const std::function<void()>& heartbeat = {});

  // The sum of the labels' log-probabilities of every sequence of each micro-batch, nats; not finite where a logit is not. Several at once,
  // as steps are; a micro-batch's bits depend on nothing else. Local.
  std::vector<std::vector<double>> sequence_logprobs(std::span<const MicroBatch> batches,
                                                     const std::function<void()>& heartbeat = {});

  // What each micro-batch loses with the weights as they are. Several at once, likewise. Not for GRPO. Local.
  std::vector<HeldOutSums> losses(std::span<const MicroBatch> batches, const std::function<void()>& heartbeat = {});

  // The labels' log-probabilities of each micro-batch [T], nats, f32, NaN in rows without a label; with the temperature of the policy. Of the
  // weights as they are, or of GRPO's reference. Several at once, likewise. Local.
  std::vector<at::Tensor> label_logprobs(std::span<const MicroBatch> batches, bool of_reference,
                                         const std::function<void()>& heartbeat = {});
  // The model with the weights as they are; refers to this, until the next step. From a GPU they come to the host first. Of GRPO. Local.
  std::unique_ptr<TensorFile> weights_file();

  const ParameterLayout& layout() const { return layout_; }
  // What is trained: the layout of weights(), gradients and moments. The model's, or with LoRA the adapter's.
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }
  // Where they are trained: on the host, or with optimizer_on_gpu on the GPU, between which copies() goes.
  // The model's on the host are one tensor for all ranks of a host where they can be (host_weights.h): who writes them writes what every rank writes.
  at::Tensor& weights() {
    if (gpu_optimizer_) return weights_there();
    is_sent_ = false;  // may be written
    return weights_here();
  }
  // The moments of this rank's part of shards() over sharing(), likewise: all of them, alone, where the optimizer is not divided.
  OptimizerState& optimizer() { return state_; }
  StagedCopies& copies() { return copies_; }
  bool trains_on_gpu() const { return gpu_optimizer_.has_value(); }
  const FlatShards& shards() const { return shards_; }
  const Communicator& sharing() const { return options_.divides_optimizer ? world_ : alone_; }
  const Communicator& world() const { return world_; }

 private:
  struct Outcome {
    double loss = 0;      // sum over the tokens, times scale
    double finite = 1.0;  // 0: the loss or a gradient is not
    PairRewards rewards;  // sums over the pairs
    PolicyMeans policy;   // sums over the tokens
    ValueMeans value;     // sums over the texts
  };
  Outcome run(const MicroBatch& batch, double scale, MicroGradient& gradient, bool recompute) const;
  // The same bits with as much memory as there is.
  Outcome run_within_memory(const MicroBatch& batch, double scale, MicroGradient& gradient);
  // What the head makes of a pass: loss and rewards, the gradient of the hidden states, and the head's own, which is added.
  struct HeadGradients {
    at::Tensor hidden_TD;  // made
    at::Tensor head;       // added to; undefined: the head is frozen
  };
  using Losses = Outcome (Trainer::*)(const MicroBatch&, const TrunkPass&, double scale, HeadGradients*) const;
  Losses losses_of_objective() const;
  // gradients: nullptr: the losses alone.
  Outcome token_losses(const MicroBatch& batch, const TrunkPass& pass, double scale, HeadGradients* gradients) const;
  Outcome dpo_losses(const MicroBatch& batch, const TrunkPass& pass, double scale, HeadGradients* gradients) const;
  Outcome reward_losses(const MicroBatch& batch, const TrunkPass& pass, double scale, HeadGradients* gradients) const;
  Outcome value_losses(const MicroBatch& batch, const TrunkPass& pass, double scale, HeadGradients* gradients) const;
  Outcome policy_losses(const MicroBatch& batch, const TrunkPass& pass, double scale, HeadGradients* gradients) const;
  TrunkPass pass_of(const MicroBatch& batch, bool recompute) const;
  // The weights as they are, before passes. Local.
  void send_weights();
  // Makes `there` a copy on the device, in a new tensor the first time. Local.
  void send(const at::Tensor& here, at::Tensor& there);
  // Whether the sum of a step's gradients is left on the device.
  bool sum_stays() const { return gpu_optimizer_ && options_.sums_on_gpu && world_.size() == 1; }
  double norm_of(const at::Tensor& gradient);
  // One update of the weights, on every rank and where passes read them. Collective over world.
  void update(double lr, double scale, const at::Tensor& gradient);
  void gather_weights();
  at::Tensor& weights_here() { return lora_ ? adapter_ : model_.tensor(); }
  at::Tensor& weights_there() { return lora_ ? adapter_there_ : model_there_; }
  ThreadPool& pass_pool() { return fewer_passes_ ? *fewer_passes_ : pool_; }
  at::Device sums_device() const { return options_.sums_on_gpu ? device_.device() : at::Device(at::kCPU); }
  at::Tensor zeros(at::IntArrayRef shape) const;
  at::Tensor head() const { return layout_.view(model_weights(), layout_.head()); }
  HeadLossOptions head_options() const;

  // As passes read them.
  const at::Tensor& model_weights() const { return device_.has_gpu_code() ? model_there_ : model_.tensor(); }
  const at::Tensor& adapter_weights() const { return device_.has_gpu_code() ? adapter_there_ : adapter_; }

  ParameterLayout layout_;
  std::optional<LoraLayout> lora_;
  TrainerOptions options_;
  const Communicator& world_;
  Communicator alone_;
  Communicator sums_;  // world's ranks, for messages that are under way beside others
  TrainingDevice device_;
  mutable ThreadPool pool_;
  std::optional<ThreadPool> fewer_passes_;  // than threads; of a GPU one, on this thread, whose device it is
  StagedCopies copies_;
  Communicator host_;   // world's ranks on this host
  HostWeights model_;   // with LoRA they stay as they are; undefined where the GPU has the only ones
  at::Tensor adapter_;  // LoRA's factors
  // With a GPU's code: copies. With optimizer_on_gpu what is trained is these.
  at::Tensor model_there_, adapter_there_;
  bool is_sent_ = false;
  HostWeights
      reference_;  // of GRPO with beta: the model before the first step; undefined with LoRA, whose model is that
  MemoryLadder memory_;
  FlatShards shards_;
  OptimizerState state_;
  std::optional<GpuOptimizer> gpu_optimizer_;
};

}  // namespace magister
