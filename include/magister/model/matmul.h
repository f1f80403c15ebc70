// One matrix product on one thread: out[M, N] (+)= x[M, K] * weight[N, K]^T. fp32 goes straight to BLAS (MKL inside
// libtorch); 16-bit weights take ATen's product of the rounded activations. Rows never depend on the number of threads.
// Shapes: M rows of a tile, K in, N out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace magister {

// A linear layer's slice on this shard. weight_NK: contiguous, CPU, f32, bf16 or f16. bias_N: f32 or undefined.
struct Linear {
  at::Tensor weight_NK;
  at::Tensor bias_N;
  std::int64_t in_features() const { return weight_NK.size(1); }
  std::int64_t out_features() const { return weight_NK.size(0); }
};

// x and out are f32 with row strides in elements. The bias is added when there is one.
void linear_tile(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear, float* out,
                 std::int64_t out_stride, bool accumulate);

// C[m, n] = alpha * A[m, k] * op(B) + beta * C, all f32 row-major with row strides; transpose_b: B is [n, k].
void sgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
           std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride);

}  // namespace magister
