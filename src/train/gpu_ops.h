// What stands in place of fused_ops.h and trained_linear.h on a GPU: the same formulas out of ATen's operations, which know where their tensors
// are, with as little kept for the backward pass. They sum without atomics, so that a pass has the same bits each time. On tensors of the host
// they are what tests look at (MAGISTER_GPU_CODE_ON_HOST=1). They have not run on a GPU.
// Legend: T rows of a packed batch, K inputs, N outputs, H heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "magister/model/rope.h"

namespace magister {

// As long as one stands with `on`, the operations of fused_ops.h and trained_linear.h are these, on this thread; differentiated they may be on any.
class GpuCodeScope {
 public:
  explicit GpuCodeScope(bool on) : before_(std::exchange(is_on_, on)) {}
  ~GpuCodeScope() { is_on_ = before_; }
  GpuCodeScope(const GpuCodeScope&) = delete;
  GpuCodeScope& operator=(const GpuCodeScope&) = delete;
  static bool is_on() { return is_on_; }

 private:
  static inline thread_local bool is_on_ = false;
  bool before_;
};

at::Tensor gpu_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor gpu_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved);
at::Tensor gpu_silu_product(const at::Tensor& gate, const at::Tensor& up);
at::Tensor gpu_linear(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N, bool bf16);

// left right, f32. bf16: both are rounded to bf16 and their products summed in f32. Not differentiable.
at::Tensor gpu_product(const at::Tensor& left_MK, const at::Tensor& right_KN, bool bf16);

}  // namespace magister
