// The tiled fast path of the MLP: both products and the activation between them, while a tile is in cache.
#include "model/cpu/feed_forward.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/block_norms.h"

namespace magister {
namespace {

void apply_xielu(const Xielu& xielu, const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float linear = Xielu::kBeta * x[i];
    out[i] = x[i] > 0 ? xielu.alpha_p * x[i] * x[i] + linear
                      : xielu.alpha_n * (std::expm1(std::min(x[i], Xielu::kLeast)) - x[i]) + linear;
  }
}

// For each row the sum of its first `columns` numbers, and of their squares.
void add_up(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, double* sums_R2) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      const double number = x[r * stride + i];
      sum += number;
      squares += number * number;
    }
    sums_R2[2 * r] = sum;
    sums_R2[2 * r + 1] = squares;
  }
}

}  // namespace

// Source: transformers Gemma3nTextMLP._gaussian_topk, whose standard deviation is over all columns, not one less.
void FeedForward::thin(float* gate_up_RF2, const double* sums_R2, std::int64_t rows, std::int64_t columns) const {
  const std::int64_t F = shape_.mlp;
  const auto count = static_cast<double>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double mean = sums_R2[2 * r] / count, variance = sums_R2[2 * r + 1] / count - mean * mean;
    const auto limit = static_cast<float>(mean + *shape_.gate_cutoff * std::sqrt(std::max(variance, 0.0)));
    float* gate_F = gate_up_RF2 + r * 2 * F;
    for (std::int64_t i = 0; i < F; ++i) gate_F[i] = std::max(gate_F[i] - limit, 0.0f);
  }
}

void FeedForward::project(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                          int thread_index, float* gate_up_RF2, double* sums_R2, ThreadPool* pool) const {
  const std::int64_t D = shape_.hidden_size, F = shape_.mlp, rows = end - begin;
  const float* input_RD = block_input(weights_.norms, shape_.rms_norm_eps, hidden_TD + begin * D,
                                      buffers.scratch_of(thread_index), rows, D);
  linear_tile(input_RD, D, rows, weights_.gate_up_proj, gate_up_RF2, 2 * F, false, pool, buffers.kind);
  add_up(gate_up_RF2, 2 * F, rows, F, sums_R2);
}

void FeedForward::finish(float* gate_up_RF2, const double* sums_R2, std::int64_t begin, std::int64_t end,
                         LayerBuffers& buffers, int thread_index, float* out_TD, ThreadPool* pool) const {
  const std::int64_t D = shape_.hidden_size, F = shape_.mlp, rows = end - begin;
  float* activated_RF = buffers.scratch_of(thread_index);
  thin(gate_up_RF2, sums_R2, rows, shape_.all_mlp);
  cpu_kernels().activate[static_cast<std::size_t>(shape_.activation)](gate_up_RF2, 2 * F, activated_RF, F, rows, F);
  linear_tile(activated_RF, F, rows, weights_.down_proj, out_TD + begin * D, D, false, pool, buffers.kind);
}

void FeedForward::run(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                      int thread_index, float* out_TD, bool accumulate, ThreadPool* pool) const {
  const std::int64_t D = shape_.hidden_size, F = shape_.mlp, rows = end - begin;
  float* normed_RD = buffers.scratch_of(thread_index);
  const std::int64_t width = shape_.gated_mlp ? 2 * F : F;
  float* gate_up_RF2 = normed_RD + rows * D;  // [rows, F] without a gate
  float* activated_RF = gate_up_RF2 + rows * width;
  const float* input_RD = block_input(weights_.norms, shape_.rms_norm_eps, hidden_TD + begin * D, normed_RD, rows, D);
  linear_tile(input_RD, D, rows, weights_.gate_up_proj, gate_up_RF2, width, false, pool, buffers.kind);
  if (thins_gates()) {
    std::vector<double> sums_R2(static_cast<std::size_t>(2 * rows));
    add_up(gate_up_RF2, width, rows, F, sums_R2.data());
    thin(gate_up_RF2, sums_R2.data(), rows, F);
  }
  const auto activation = static_cast<std::size_t>(shape_.activation);
  const CpuKernels& kernels = cpu_kernels();
  if (weights_.xielu.is_on) {
    apply_xielu(weights_.xielu, gate_up_RF2, activated_RF, rows * F);
  } else if (shape_.swiglu_limit > 0) {
    kernels.clamped_swiglu(gate_up_RF2, width, activated_RF, F, rows, F, shape_.swiglu_alpha, shape_.swiglu_limit);
  } else {
    (shape_.gated_mlp ? kernels.activate : kernels.activate_alone)[activation](gate_up_RF2, width, activated_RF, F,
                                                                               rows, F);
  }
  linear_tile(activated_RF, F, rows, weights_.down_proj, out_TD + begin * D, D, accumulate, pool, buffers.kind);
}

}  // namespace magister
