// Plain loops over fixed blocks of the flat tensors, compiled with -O3: at -O2 this compiler leaves them scalar.
#include "magister/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

constexpr std::int64_t kBlock = 1 << 16;  // numbers; a multiple of the parameters' alignment

}  // namespace

double lr_factor(LrSchedule schedule, std::uint64_t step, std::uint64_t warmup_steps, std::uint64_t total_steps) {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(warmup_steps),
             total = static_cast<double>(total_steps);
  if (step < warmup_steps) return s / std::max(1.0, warmup);
  const double rest = std::max(1.0, total - warmup);
  switch (schedule) {
    case LrSchedule::kLinear:
      return std::max(0.0, (total - s) / rest);
    case LrSchedule::kCosine:
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * (s - warmup) / rest)));
    case LrSchedule::kConstant:
      break;
  }
  return 1.0;
}

OptimizerState new_optimizer_state(const FlatLayout& layout) {
  return {at::zeros({layout.flat_size()}, at::kFloat), at::zeros({layout.flat_size()}, at::kFloat), 0};
}

namespace {

double squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  }
  for (; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double global_norm(const at::Tensor& flat_gradient, ThreadPool& pool) {
  const std::int64_t size = flat_gradient.numel(), blocks = (size + kBlock - 1) / kBlock;
  const float* const g = flat_gradient.const_data_ptr<float>();
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  pool.run(blocks, [&](std::int64_t block, int) {
    sums[static_cast<std::size_t>(block)] =
        squares(g + block * kBlock, std::min(size, (block + 1) * kBlock) - block * kBlock);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

namespace {

struct Update {
  float keep;  // 1 - lr * weight_decay
  float rate1, beta2, rate2, step_size, root_correction, epsilon, scale;
};

void update_block(const Update& u, const float* __restrict gradient, float* __restrict weight, float* __restrict mean,
                  float* __restrict square, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * u.scale;
    const float w = weight[i] * u.keep;
    mean[i] = mean[i] + u.rate1 * (g - mean[i]);
    square[i] = square[i] * u.beta2 + u.rate2 * g * g;
    weight[i] = w - u.step_size * (mean[i] / (std::sqrt(square[i]) / u.root_correction + u.epsilon));
  }
}

}  // namespace

void adamw_update(const FlatLayout& layout, const OptimizerOptions& options, double lr, double scale,
                  const at::Tensor& flat_gradient, at::Tensor& flat_weights, OptimizerState& state, ThreadPool& pool) {
  const auto number = static_cast<double>(++state.updates);
  const double correction1 = 1.0 - std::pow(options.beta1, number), correction2 = 1.0 - std::pow(options.beta2, number);
  Update update{1.0f,
                static_cast<float>(1.0 - options.beta1),
                static_cast<float>(options.beta2),
                static_cast<float>(1.0 - options.beta2),
                static_cast<float>(lr / correction1),
                static_cast<float>(std::sqrt(correction2)),
                static_cast<float>(options.epsilon),
                static_cast<float>(scale)};
  struct Block {
    std::int64_t begin, count;
    bool decays;
  };
  std::vector<Block> blocks;
  for (const TrainParameter& parameter : layout.all()) {
    for (std::int64_t begin = 0; begin < parameter.count; begin += kBlock)
      blocks.push_back({parameter.offset + begin, std::min(kBlock, parameter.count - begin), parameter.decays()});
  }
  const auto keep = static_cast<float>(1.0 - lr * options.weight_decay);
  pool.run(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t index, int) {
    const Block& block = blocks[static_cast<std::size_t>(index)];
    Update own = update;
    if (block.decays) own.keep = keep;
    update_block(own, flat_gradient.const_data_ptr<float>() + block.begin, flat_weights.data_ptr<float>() + block.begin,
                 state.mean.data_ptr<float>() + block.begin, state.square.data_ptr<float>() + block.begin, block.count);
  });
}

}  // namespace magister
