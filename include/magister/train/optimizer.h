// AdamW with decoupled weight decay and bias correction (Loshchilov & Hutter, arXiv 1711.05101), with
// torch.optim.AdamW's operations in their order, over flat f32 tensors; the schedules of transformers (get_scheduler)
// by name; clipping by the global norm, as torch.nn.utils.clip_grad_norm_ does it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/train/flat_shards.h"
#include "magister/train/parameters.h"

namespace magister {

class ThreadPool;

struct OptimizerOptions {
  double lr = 5e-5, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;  // for parameters that decay
  double clip = 1.0;          // largest global norm; 0: none
};

enum class LrSchedule { kLinear, kCosine, kConstant };

// Factor of the learning rate at update number `step` (from 0): rises linearly from 0 over the first warmup_steps, then
// falls to 0 at total_steps, linearly or as half a cosine, or stays.
double lr_factor(LrSchedule schedule, std::uint64_t step, std::uint64_t warmup_steps, std::uint64_t total_steps);

struct OptimizerState {
  at::Tensor mean, square;    // exp_avg and exp_avg_sq of this rank's part of the flat tensor
  std::uint64_t updates = 0;  // updates made; skipped steps do not count
};
OptimizerState new_optimizer_state(std::int64_t part_size, at::Device device = at::Device(at::kCPU));

// The L2 norm of a flat gradient whose parts the ranks have, in two steps and summed in double over fixed blocks, so
// that neither ranks nor threads change it. First the sums of squares of the blocks of 4,096 numbers in a rank's part
// (local), then the norm from the sums of all ranks (collective over ranks).
std::vector<double> block_squares(const at::Tensor& part_of_gradient, ThreadPool& pool);
double norm_of_blocks(const Communicator& ranks, const FlatShards& shards, const std::vector<double>& own);

// Weights that are clipped to +-limit before an update, and belong to the rank.
struct ClippedWeights {
  FlatRange range;
  double limit;
};
std::vector<ClippedWeights> clipped_weights(const FlatLayout& layout, const FlatShards& shards, int rank);
// flat_weights: on any device. Local, queued on a GPU.
void clip(const std::vector<ClippedWeights>& clipped, at::Tensor& flat_weights);

// One update of the rank's part of the flat weights, piece by piece, as the gradient arrives. First the gradient is
// multiplied by `scale` (clipping), and the weights that have a limit are clipped. The bits do not depend on pieces,
// ranks and threads.
class AdamwUpdate {
 public:
  // Begins the update: counts it, and clips the weights. Everything is kept by reference. Local.
  AdamwUpdate(const FlatLayout& layout, const FlatShards& shards, int rank, const OptimizerOptions& options, double lr,
              double scale, at::Tensor& flat_weights, OptimizerState& state, ThreadPool& pool);
  ~AdamwUpdate();
  // gradient: the numbers of the rank's part from `begin` on. Each number once, in any order. Local.
  void run(std::int64_t begin, const at::Tensor& gradient) const;

 private:
  struct Work;
  std::unique_ptr<Work> work_;
  at::Tensor& flat_weights_;
  OptimizerState& state_;
  ThreadPool& pool_;
};

// The whole update at once. Local.
void adamw_update(const FlatLayout& layout, const FlatShards& shards, int rank, const OptimizerOptions& options,
                  double lr, double scale, const at::Tensor& part_of_gradient, at::Tensor& flat_weights,
                  OptimizerState& state, ThreadPool& pool);

}  // namespace magister
