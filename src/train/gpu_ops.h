// The operations of fused_ops.h on a GPU: the same formulas as kernels (train/gpu/), which keep as little for the
// backward pass. They sum without atomics, so a pass has the same bits each time. On tensors of the host the kernels
// are emulated, which tests use (MAGISTER_GPU_CODE_ON_HOST=1). Products: gpu_products.h, attention: gpu_attention.h.
// Legend: T rows of a packed batch, F columns of an MLP, H heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "magister/device/launch.h"
#include "magister/model/activation.h"
#include "magister/model/rope.h"

namespace magister {

// While an object with `on` exists, the operations of fused_ops.h and trained_linear.h on this thread are these; their
// backward pass may run on any thread.
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

// The queue for a tensor's kernels: the stream of its device that ATen's operations use too, or the host.
gpu::Queue queue_at(const at::Tensor& tensor);

// As in fused_ops.h, by the kernels of train/gpu/. x: f32, or bf16 with f32 sums; the result is of type `to`, f32 or
// bf16.
at::Tensor gpu_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType to = at::kFloat);
// The same for the residual stream. It also returns the stream itself, for what is added to it: that gradient joins the
// norm's in one kernel.
std::pair<at::Tensor, at::Tensor> gpu_norm_of_stream(const at::Tensor& x, const at::Tensor& weight, double eps,
                                                     at::ScalarType to);
at::Tensor gpu_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved);
// act(gate) * up, f32 or bf16: from two tensors, or from one with the gate's columns first.
at::Tensor gpu_gate(const at::Tensor& gate_TF, const at::Tensor& up_TF, Activation activation);
at::Tensor gpu_gate(const at::Tensor& gate_up_TF2, Activation activation);

// The operations alone, without a graph: gpu_products.h runs them again in the backward pass. The norm's result is
// bf16; the gate's gradient has both halves side by side.
at::Tensor norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor gate_forward(const at::Tensor& gate_up_TF2, Activation activation);
at::Tensor gate_backward(const at::Tensor& gradient_TF, const at::Tensor& gate_up_TF2, Activation activation);

}  // namespace magister
