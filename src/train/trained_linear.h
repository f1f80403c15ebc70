// A linear layer of the trunk, forward and backward by the products of inference (model/cpu/matmul.h): every element of
// an output or gradient is one chain of fused multiply-adds, whatever the instruction set. On AMD's CPUs with AVX-512
// this is twice as fast as MKL's sgemm, on Intel's as fast.
#pragma once

#include <ATen/core/Tensor.h>

namespace magister {

// x_TK weight_NK^T + bias_N, or with inputs_first x_TK weight_KN + bias_N; bias may be undefined. Differentiable by all
// three; a tensor without a gradient costs nothing. bf16: both operands of each of the three products are rounded to
// bf16, sums and results are f32; x is kept in bf16. Runs on the calling thread; in a GpuCodeScope as gpu_products.h
// does.
at::Tensor trained_linear(const at::Tensor& x_TK, const at::Tensor& weight, const at::Tensor& bias_N, bool inputs_first,
                          bool bf16);

}  // namespace magister
