// Trainer: the weights, the optimizer and the steps of a training on data-parallel ranks. Each rank has a whole copy of
// the weights and, with ZeRO-1, its part of the optimizer. A step's micro-batches depend only on config and data;
// several are computed at once, one per thread, and GradientTree sums their gradients. Losses and weights are bit for
// bit the same on any number of ranks and threads, unless fast sums are requested. It reads no file but the model's.
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

#include "magister/device/copy_queue.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/device_exchange.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/gpu_optimizer.h"
#include "magister/train/head_loss.h"
#include "magister/train/host_weights.h"
#include "magister/train/lora.h"
#include "magister/train/memory_ladder.h"
#include "magister/train/micro_gradient.h"
#include "magister/train/objective.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "magister/train/policy_loss.h"
#include "magister/train/preference_loss.h"
#include "magister/train/staged_copies.h"
#include "magister/train/training_device.h"
#include "magister/train/trunk.h"
#include "magister/train/value_loss.h"

namespace magister {

// Two sequences of a batch: 2i is the chosen and 2i + 1 the rejected answer of pair i, each with its prompt.
struct Pair {
  double chosen_reference = 0, rejected_reference = 0;  // DPO: log-probabilities by the reference model, nats
  double margin = 0;                                    // reward models
  std::int64_t chosen_row = 0, rejected_row = 0;        // rows of the batch that the rewards are read from
};

// A sequence of a GRPO batch: a prompt, then the text that was written, whose tokens have labels.
struct PolicyText {
  double advantage = 0;
  double token_weight = 0;  // weight of each of its tokens in the loss of the step
};

struct MicroBatch {
  TrainBatch tokens;
  HeadLossTargets targets;
  std::vector<Pair> pairs{};        // DPO, where targets has the answers' labels, and reward models
  std::vector<PolicyText> texts{};  // GRPO, by sequence
  std::vector<ValueText> values{};  // value models, by sequence
  // GRPO: log-probabilities as label_logprobs() gives them, f32. old: by the weights that generated the texts;
  // undefined: the current weights did. reference: by the reference; undefined: there is none.
  at::Tensor old_logprob_T{}, reference_logprob_T{};
  // Fills in the teacher's rows, which are large, when the micro-batch is computed; empty: none. Any thread.
  std::function<void(HeadLossTargets&)> read_teacher{};
};

struct TrainerOptions {
  ObjectiveKind objective = ObjectiveKind::kLm;
  OptimizerOptions optimizer;
  DistillOptions distill;        // `lm` and DPO: weight 0, lm_weight 1
  PreferenceOptions preference;  // pairs
  PolicyOptions policy;          // GRPO
  ValueOptions value;            // value models
  NewHead new_head;              // reward or value models that begin as a language model
  bool recompute = false;        // gradient checkpointing by layer
  int passes_at_once = 0;        // limit on micro-batches at once if memory is short; 0: one per thread
  // The layers' products are bf16, see TrunkOptions; weights, sums and the optimizer are f32.
  bool bf16 = false;
  bool fast_sums = false;          // gradients of the ranks are added in any order
  bool divides_optimizer = false;  // ZeRO-1: each rank has its part of the moments, and updates its part of the weights
  std::optional<LoraOptions> lora;  // train an adapter's factors instead of the model's weights
  std::optional<gpu::Queue> gpu;    // runs the passes, see TrainingDevice
  // A rank's own micro-batches are added up on the GPU, if that many gradients fit there; the same bits.
  bool sums_on_gpu = false;
  bool optimizer_on_gpu = false;  // trained weights and moments are on the GPU and updated there; the same bits
  // The ranks' GPUs add their gradients and give each other weights without the host; the same bits. For several ranks
  // with sums and optimizer on GPUs; all ranks have the same value.
  bool gpus_exchange = false;
};

// Means over the pairs of a step.
struct PairRewards {
  double chosen = 0, rejected = 0;
  double accuracy = 0;  // share of the pairs whose chosen answer has the higher reward
};

// Means over the tokens of a step of GRPO.
struct PolicyMeans {
  double kl = 0;       // k3 against the reference, nats
  double clipped = 0;  // share of the tokens whose ratio has no gradient
};

// Means over the texts of a step of a value model.
struct ValueMeans {
  double label = 0, value = 0;  // label: what the texts were worth; value: what the model expected of them
};

struct StepResult {
  double loss = 0;           // mean over the tokens that are learnt from, or over the pairs
  PairRewards rewards;       // pairs
  PolicyMeans policy;        // GRPO
  ValueMeans value;          // value models
  double grad_norm = 0;      // before clipping
  bool skipped = false;      // loss or gradient was not finite: weights and moments are unchanged
  std::uint64_t tokens = 0;  // tokens that are learnt from, over all ranks
  // The step's micro-batches, by number over all ranks, whose loss or gradient was not finite.
  std::vector<std::uint64_t> not_finite;
};

// Sums over the labels or pairs of a held-out micro-batch.
struct HeldOutSums {
  double loss = 0;  // nats
  PairRewards rewards;
};

struct ObjectiveLoss;  // src/train/objective_loss.h
struct HeadPass;
struct LossSums;

class Trainer {
 public:
  // Reads the weights. world is kept by reference; the layout is copied. num_threads: micro-batches at once; with a GPU
  // only threads of the host. Collective over world.
  Trainer(const ParameterLayout& layout, const TensorFile& file, const TrainerOptions& options,
          const Communicator& world, int num_threads);

  // Loss and gradient of a step over all ranks. own: this rank's micro-batches (micro_batches_of); heartbeat: called
  // between them, by any thread. `gradient` becomes this rank's part (shards()) of the gradient of sum(loss) / tokens
  // (or / pairs); undefined if a loss or a gradient is not finite. Collective over world.
  StepResult differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, at::Tensor& gradient,
                           const std::function<void()>& heartbeat = {});
  // Differentiates, clips and updates. Collective over world.
  StepResult step(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, double lr,
                  const std::function<void()>& heartbeat = {});

  // The sum of the labels' log-probabilities of every sequence of each micro-batch, nats; not finite if a logit is not.
  // Several are computed at once, as in steps; a micro-batch's bits depend on nothing else. Local.
  std::vector<std::vector<double>> sequence_logprobs(std::span<const MicroBatch> batches,
                                                     const std::function<void()>& heartbeat = {});

  // The loss of each micro-batch with the current weights. Several are computed at once, too. Not for GRPO. Local.
  std::vector<HeldOutSums> losses(std::span<const MicroBatch> batches, const std::function<void()>& heartbeat = {});

  // The labels' log-probabilities of each micro-batch [T], nats, f32, NaN in rows without a label, at the policy's
  // temperature. By the current weights, or by GRPO's reference. Several are computed at once, too. Local.
  std::vector<at::Tensor> label_logprobs(std::span<const MicroBatch> batches, bool of_reference,
                                         const std::function<void()>& heartbeat = {});
  // The model with the current weights, where passes read them; refers to this object, until the next step. For GRPO.
  // Local.
  std::unique_ptr<TensorFile> weights_file();

  // Ends the exchange between the ranks' GPUs in order, after the last step. Collective over world.
  void close();

  const ParameterLayout& layout() const { return layout_; }
  // The layout of weights(), gradients and moments: the model's, or with LoRA the adapter's.
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }
  // The trained weights: on the host, or with optimizer_on_gpu on the GPU; copies() moves tensors between the two. On
  // the host the model's weights are one tensor for all ranks of a host if possible (host_weights.h), so every rank
  // must write the same values.
  at::Tensor& weights() {
    if (gpu_optimizer_) return weights_on_device();
    is_sent_ = false;  // may be written
    return weights_on_host();
  }
  // The moments of this rank's part of shards() over sharing(), in the same place; all of them if the optimizer is not
  // divided.
  OptimizerState& optimizer() { return state_; }
  StagedCopies& copies() { return copies_; }
  // With optimizer_on_gpu: copies of weights and moments that run beside the next passes. An update begins after them.
  CopyQueue& copy_queue() { return *copy_queue_; }
  bool trains_on_gpu() const { return gpu_optimizer_.has_value(); }
  const FlatShards& shards() const { return shards_; }
  const Communicator& sharing() const { return options_.divides_optimizer ? world_ : alone_; }
  const Communicator& world() const { return world_; }

 private:
  LossSums run(const MicroBatch& batch, double scale, MicroGradient& gradient, bool recompute) const;
  // The same bits with as much memory as there is.
  LossSums run_within_memory(const MicroBatch& batch, double scale, MicroGradient& gradient);
  TrunkPass pass_of(const MicroBatch& batch, bool recompute, bool learns = false) const;
  // Brings the current weights to where passes read them. Local.
  void send_weights();
  // Makes `there` a copy of `here` on the device, the first time in a new tensor. Local.
  void send(const at::Tensor& here, at::Tensor& there);
  // Reports whether the sum of a step's gradients stays on the device.
  bool sum_stays() const { return options_.sums_on_gpu && (world_.size() == 1 || exchange_); }
  double norm_of(const at::Tensor& gradient);
  // One update of the weights, on every rank and where passes read them. Collective over world.
  void update(double lr, double scale, const at::Tensor& gradient);
  void update_on_host(double lr, double scale, const at::Tensor& gradient);
  void update_on_device(double lr, double scale, const at::Tensor& gradient);
  void gather_weights(std::optional<std::int64_t> bucket = {});
  // Gives every rank the other ranks' new weights of a bucket, and begins to send these to the device.
  void share_bucket(std::int64_t bucket);
  at::Tensor& weights_on_host() { return lora_ ? adapter_ : model_.tensor(); }
  at::Tensor& weights_on_device() { return lora_ ? adapter_on_device_ : model_on_device_; }
  ThreadPool& pass_pool() { return fewer_passes_ ? *fewer_passes_ : pool_; }
  at::Device sums_device() const { return options_.sums_on_gpu ? device_.device() : at::Device(at::kCPU); }
  at::Tensor zeros(at::IntArrayRef shape) const;
  // The head that losses multiply, [V, D]: its biases, if it has them, are a last column, for which hidden states have
  // a last number of 1.
  at::Tensor head_of(const at::Tensor& model) const;
  at::Tensor head_rows(const at::Tensor& hidden_TD) const;
  HeadLossOptions head_options() const;
  HeadPass head_pass(const at::Tensor& hidden_TD) const;  // hidden_TD is kept by reference

  // Weights as passes read them.
  const at::Tensor& model_weights() const { return device_.has_gpu_code() ? model_on_device_ : model_.tensor(); }
  const at::Tensor& adapter_weights() const { return device_.has_gpu_code() ? adapter_on_device_ : adapter_; }

  ParameterLayout layout_;
  std::optional<LoraLayout> lora_;
  TrainerOptions options_;
  const ObjectiveLoss& loss_;
  const Communicator& world_;
  Communicator alone_;
  Communicator sums_;  // world's ranks, for messages that are under way at the same time as others
  TrainingDevice device_;
  mutable ThreadPool pool_;
  // Used if fewer passes than threads run at once. With a GPU it has one thread, the caller, whose device it is.
  std::optional<ThreadPool> fewer_passes_;
  StagedCopies copies_;
  Communicator host_;   // world's ranks on this host
  HostWeights model_;   // unchanged with LoRA; undefined if only the GPU has weights
  at::Tensor adapter_;  // LoRA's factors
  // GPU code: copies. With optimizer_on_gpu these are the trained weights.
  at::Tensor model_on_device_, adapter_on_device_;
  bool is_sent_ = false;
  // GRPO with beta: the model before the first step; undefined with LoRA, whose unchanged model is the reference.
  HostWeights reference_;
  MemoryLadder memory_;
  FlatShards shards_;
  OptimizerState state_;
  std::optional<GpuOptimizer> gpu_optimizer_;
  std::unique_ptr<CopyQueue> copy_queue_;     // with gpu_optimizer_
  std::unique_ptr<DeviceExchange> exchange_;  // between the ranks' GPUs; null: what ranks exchange goes through hosts
};

}  // namespace magister
