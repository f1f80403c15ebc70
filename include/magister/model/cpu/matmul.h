// Products with a linear layer's weights: out[M, N] (+)= x[M, K] * weight[N, K]^T. Weights are stored in panels of 48
// outputs, [K][48], so that every element of a product is one chain of fused multiply-adds over K in this order,
// whatever M, the tile or the instruction set. So the bits of a row never depend on the rows that are computed with it.
// 16-bit weights and int8 and int4 codes (quantize.h) keep their storage and are widened on the way. Activations and
// sums are f32; codes times rows of texts are sums of integers (RowKind). Where the CPU has bf16 products that are
// faster than fp32 ones (cpu_prefers_bf16), bf16 weights are stored in panels of pairs instead, activations are rounded
// to bf16, and only sums are f32.
// Shapes: M rows of a tile, K inputs, N outputs, P panels. Speed: 0.95-0.98 of MKL's best sgemm at M = 256.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/cpu/quantize.h"

namespace magister {

class ThreadPool;

// A linear layer's slice on this shard, on the CPU: either plain as it was read, or packed for the products. If a
// packed one has a scheme, it is quantised: its panels hold codes, and dtype() is that of plain_weight(), f32.
struct Linear {
  static constexpr std::int64_t kPanel = 48;      // outputs per panel: three AVX-512 registers
  static constexpr std::int64_t kPairDepth = 32;  // the inputs of a panel of pairs are padded to a multiple of this

  at::Tensor weight_NK;  // contiguous, f32, bf16 or f16; products accept f32, or packed weights
  at::Tensor bias_N;     // f32 or undefined
  // [ceil(N / 48), K, 48] in the same dtypes; quantised: [P, words, 48] i32. Outputs beyond N are 0.
  at::Tensor panels_PKW{};
  std::int64_t num_outputs = 0;  // N of packed weights
  // Only for quantised weights (see QuantizedPanel):
  at::Tensor scales_PGW{};   // [P, groups, 48] bf16; f16 for kept codes with f16 scales
  at::Tensor offsets_PGW{};  // [P, groups, 48] f16: zero points or minima of kept codes, else undefined
  QuantScheme scheme{};
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  std::int64_t num_inputs = 0;  // K
  std::int64_t lead = 0;        // inputs of the first group that another shard holds
  // True for bf16 panels of pairs (see Bf16Product): [P, Kp / 2, 96], with Kp = num_inputs rounded up to 32.
  bool pairs = false;

  bool is_packed() const { return panels_PKW.defined(); }
  bool is_quantized() const { return scheme.on(); }
  std::int64_t in_features() const {
    return is_quantized() || pairs ? num_inputs : is_packed() ? panels_PKW.size(1) : weight_NK.size(1);
  }
  std::int64_t out_features() const { return is_packed() ? num_outputs : weight_NK.size(0); }
  at::ScalarType dtype() const {
    return is_quantized() ? at::kFloat : (is_packed() ? panels_PKW : weight_NK).scalar_type();
  }

  // [N, K] in the stored dtype, f32 if quantised. A packed weight is copied.
  at::Tensor plain_weight() const;
  // Outputs [begin, end) without the bias, sharing storage. If packed, begin must be a multiple of 48.
  Linear outputs(std::int64_t begin, std::int64_t end) const;
  // Row n of the weight as f32, for embedding lookups. out: [K].
  void copy_row(std::int64_t n, float* out) const;
};

// A row of a product belongs to a prompt or to a text that is being written. Codes are widened to f32 for rows of
// prompts, so that these have the bits of a run without quantisation. Rows of texts are rounded to 16 bits and
// multiplied by the codes as integers (CodeProduct), which reads the weights faster. Other weights give both the same
// bits.
enum class RowKind { kPrompt, kText };

// Packs the weight into panels. While it runs it needs memory for N rounded up to 48 times K numbers in addition to the
// plain weight.
Linear pack(Linear plain, ThreadPool* pool = nullptr);

// x and out are f32 with row strides in elements. The bias is added if there is one. With a pool its threads share the
// outputs (for few rows: decoding, short units); without one this thread computes all (one of many row tiles). The bits
// are the same.
void linear_tile(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear, float* out,
                 std::int64_t out_stride, bool accumulate, ThreadPool* pool = nullptr, RowKind kind = RowKind::kPrompt);

// C[m, n] = alpha * A[m, k] * op(B) + beta * C by the BLAS inside libtorch (MKL); all f32, row-major with row strides;
// transpose_b: B is [n, k]. Our own products are measured against it: `bench sgemm`.
void sgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
           std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride);

}  // namespace magister
