// AdamW with decoupled weight decay and bias correction (Loshchilov & Hutter, arXiv 1711.05101), torch.optim.AdamW's operations in their
// order, over flat f32 tensors; the schedules of transformers (get_scheduler) by their names; clipping by the global norm as
// torch.nn.utils.clip_grad_norm_ does it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "magister/train/parameters.h"

namespace magister {

class ThreadPool;

struct OptimizerOptions {
  double lr = 5e-5, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;  // of parameters that decay
  double clip = 1.0;          // largest global norm; 0: none
};

enum class LrSchedule { kLinear, kCosine, kConstant };

// Of the learning rate at update number `step` (from 0): rises linearly from 0 over the first warmup_steps, then falls to 0 at
// total_steps, on a line or on half a cosine, or stays.
double lr_factor(LrSchedule schedule, std::uint64_t step, std::uint64_t warmup_steps, std::uint64_t total_steps);

struct OptimizerState {
  at::Tensor mean, square;    // exp_avg and exp_avg_sq, flat
  std::uint64_t updates = 0;  // that were made; steps that were skipped do not count
};
OptimizerState new_optimizer_state(const FlatLayout& layout);

// L2 norm of a flat gradient, summed in double over fixed blocks: the threads do not change it.
double global_norm(const at::Tensor& flat_gradient, ThreadPool& pool);

// One update of flat weights; the gradient is multiplied by `scale` first (clipping). Local; the bits do not depend on the threads.
void adamw_update(const FlatLayout& layout, const OptimizerOptions& options, double lr, double scale,
                  const at::Tensor& flat_gradient, at::Tensor& flat_weights, OptimizerState& state, ThreadPool& pool);

}  // namespace magister
