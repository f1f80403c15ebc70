// The trunk's operations between products. Each computes forward and backward in one pass over its rows, where autograd
// would make a tensor for every operator of the formula. f32, CPU, on the calling thread; the bits of a row do not
// depend on other rows. In a GpuCodeScope the operations of gpu_ops.h run instead, on any device.
// Legend: T rows of a packed batch, H heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/rope.h"

namespace magister {

// x / sqrt(mean(x^2) + eps) * weight over the last dimension; weight of its length. A tensor that is not
// contiguous is copied first, here and below.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Rotates the first `turning` numbers of each head by the row's angle: halves (a, b) -> (a cos - b sin, b cos + a sin),
// or, interleaved, neighbours, for files that keep rows of q and k as pairs. rope: T rows of turning
// / 2.
at::Tensor fused_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved);

// silu(gate) * up.
at::Tensor fused_silu_product(const at::Tensor& gate, const at::Tensor& up);

}  // namespace magister
