// GpuLinear: a linear layer's slice on a GPU: plain rows for cuBLAS, or codes with scales.
// Legend: M rows, K inputs, N outputs, G groups of inputs that share a scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/gpu/launch.h"
#include "magister/model/matmul.h"

namespace magister::gpu {

struct GpuLinear {
  at::Tensor weight_NK;  // in the activations' type
  at::Tensor bias_N;     // f32 or undefined
  std::int64_t inputs = 0, outputs = 0;

  std::uint64_t num_bytes() const;
};

// A slice that was read to the CPU -> the device. Plain weights only; the type is kept.
GpuLinear to_device(const Linear& linear, at::Device device);

// out[M, N] = x[M, K] * weight^T + bias, in out_type (that of x, or kFloat). f32 sums; bf16 results are rounded once.
at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue);

}  // namespace magister::gpu
