// Trainer: the weights, the optimizer and the steps of a training on data-parallel ranks, each with a whole copy. A step's micro-batches are a
// function of config and data; several are computed at once, one a thread, and their gradients are summed by GradientTree: the loss
// sequence and the weights are bit for bit the same on any number of ranks and threads, unless fast sums are asked for. It knows no file but the model's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/head_loss.h"
#include "magister/train/lora.h"
#include "magister/train/micro_gradient.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "magister/train/trunk.h"

namespace magister {

struct MicroBatch {
  TrainBatch tokens;
  HeadLossTargets targets;
  // Fills in the teacher's rows, which are large, when the micro-batch is computed; empty: there are none. Any thread.
  std::function<void(HeadLossTargets&)> read_teacher{};
};

struct TrainerOptions {
  OptimizerOptions optimizer;
  DistillOptions distill;           // of `lm`: weight 0, lm_weight 1
  bool recompute = false;           // gradient checkpointing by layer
  bool fast_sums = false;           // gradients of the ranks are added in any order
  std::optional<LoraOptions> lora;  // train an adapter's factors instead of the model's weights
};

struct StepResult {
  double loss = 0;           // mean over the tokens that are learnt from
  double grad_norm = 0;      // before clipping
  bool skipped = false;      // loss or gradient was not finite: weights and moments are as before
  std::uint64_t tokens = 0;  // that are learnt from, over all ranks
  // Micro-batches of the step, by number over all ranks, whose loss or gradient was not finite.
  std::vector<std::uint64_t> not_finite;
};

class Trainer {
 public:
  // Reads the weights. world is kept by reference; the layout is copied. num_threads: micro-batches at once. Local.
  Trainer(const ParameterLayout& layout, const TensorFile& file, const TrainerOptions& options,
          const Communicator& world, int num_threads);

  // Loss and gradient of a step over all ranks. own: this rank's micro-batches (micro_batches_of); alive: called between them, any
  // thread. The sum of the gradients of sum(loss) / tokens is left in `gradient`, undefined where a loss or a gradient is not finite.
  // Collective over world.
  StepResult differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, at::Tensor& gradient,
                           const std::function<void()>& alive = {});
  // differentiate, clip, update. Collective over world.
  StepResult step(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, double lr,
                  const std::function<void()>& alive = {});

  const ParameterLayout& layout() const { return layout_; }
  // What is trained: the layout of weights(), gradients and moments. The model's, or with LoRA the adapter's.
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }
  at::Tensor& weights() { return weights_; }
  OptimizerState& optimizer() { return state_; }

 private:
  struct Outcome {
    double loss = 0;      // sum over the tokens, times scale
    double finite = 1.0;  // 0: the loss or a gradient is not
  };
  Outcome run(const MicroBatch& batch, double scale, MicroGradient& gradient) const;

  const at::Tensor& model_weights() const { return lora_ ? frozen_ : weights_; }

  ParameterLayout layout_;
  std::optional<LoraLayout> lora_;
  TrainerOptions options_;
  const Communicator& world_;
  ThreadPool pool_;
  at::Tensor frozen_;  // the model's weights beside an adapter
  at::Tensor weights_;
  OptimizerState state_;
};

// Memory of a rank by part: weights, gradients, optimizer, activations of num_threads micro-batches. tokens: of the largest micro-batch.
// adapter: numbers of the adapter that alone has gradients and moments; 0: the model is trained.
std::vector<std::pair<std::string, std::uint64_t>> training_bytes(const ModelConfig& config, std::int64_t adapter,
                                                                  bool recompute, std::int64_t tokens,
                                                                  std::int64_t longest, std::uint64_t own_micro_batches,
                                                                  int num_threads);

}  // namespace magister
