// The tiled fast path of the MLP: both products and the activation between them, while a tile is in cache.
#include "model/cpu/feed_forward.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

void FeedForward::run(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                      int thread_index, float* out_TD, bool accumulate, ThreadPool* pool) const {
  const std::int64_t D = shape_.hidden_size, F = shape_.mlp, rows = end - begin;
  float* normed_RD = buffers.scratch_of(thread_index);
  const std::int64_t width = shape_.gated_mlp ? 2 * F : F;
  float* gate_up_RF2 = normed_RD + rows * D;  // [rows, F] without a gate
  float* activated_RF = gate_up_RF2 + rows * width;
  const float* input_RD = block_input(weights_.norms, shape_.rms_norm_eps, hidden_TD + begin * D, normed_RD, rows, D);
  linear_tile(input_RD, D, rows, weights_.gate_up_proj, gate_up_RF2, width, false, pool);
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
  linear_tile(activated_RF, F, rows, weights_.down_proj, out_TD + begin * D, D, accumulate, pool);
}

}  // namespace magister
