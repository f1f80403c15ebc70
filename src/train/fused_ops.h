// The trunk's operations between products, each with its own forward and backward in one pass over its rows where autograd would make a tensor
// for every sign of the formula. f32, CPU, on the calling thread; a row's bits are its own. In a GpuCodeScope they are those of
// gpu_ops.h, on any device.
// Legend: T rows of a packed batch, H heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/rope.h"

namespace magister {

// x / sqrt(mean(x^2) + eps) * weight over the last dimension; x contiguous, weight of its length.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The first `turning` numbers of each head rotate by the row's angle: halves (a, b) -> (a cos - b sin, b cos + a sin), or, interleaved,
// neighbours, where the file keeps rows of q and k as pairs. x_THE: contiguous; rope: T rows of turning / 2.
at::Tensor fused_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved);

// silu(gate) * up; both contiguous.
at::Tensor fused_silu_product(const at::Tensor& gate, const at::Tensor& up);

}  // namespace magister
