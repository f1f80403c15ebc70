// Products with a linear layer's weights on one thread: out[M, N] (+)= x[M, K] * weight[N, K]^T. Weights stand in panels of
// 48 outputs, [K][48], so that every element of a product is one chain of fused multiply-adds over K in this order,
// whatever M, the tile or the instruction set: a row's bits never depend on which rows it is computed with.
// 16-bit weights keep their storage and are widened on the way, int8 and int4 codes are unpacked on the way (quantize.h);
// activations and sums are f32. Where the CPU has faster bf16 products than fp32 ones (cpu_prefers_bf16) bf16 weights stand in panels of
// pairs instead, activations are rounded to bf16, and only sums are f32: few rows and many use the same products, so there, too, a row's
// bits are its own.
// Shapes: M rows of a tile, K in, N out, P panels. Speed: 0.95-0.98 of MKL's best sgemm at M = 256.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/cpu/quantize.h"

namespace magister {

class ThreadPool;

// A linear layer's slice on this shard, CPU. Plain as it is read, or packed for the products; exactly one is defined.
// A packed one whose scheme is on is quantised: its panels hold codes, and dtype() is that of plain_weight(), f32.
struct Linear {
  static constexpr std::int64_t kPanel = 48;      // outputs a panel: three AVX-512 registers
  static constexpr std::int64_t kPairDepth = 32;  // inputs that a panel of pairs is filled up to a multiple of

  at::Tensor weight_NK;  // contiguous, f32, bf16 or f16; products need f32 or a packed one
  at::Tensor bias_N;     // f32 or undefined
  at::Tensor
      panels_PKW{};  // [ceil(N / 48), K, 48], the same types; quantised [P, words, 48] i32; outputs beyond N are 0
  std::int64_t num_outputs = 0;  // N of a packed one
  // Of a quantised one (see QuantizedPanel):
  at::Tensor scales_PGW{};   // [P, groups, 48] bf16, or f16 of kept codes
  at::Tensor offsets_PGW{};  // [P, groups, 48] f16: zeros or minima of kept codes, else undefined
  QuantScheme scheme{};
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  std::int64_t num_inputs = 0;  // K
  std::int64_t lead = 0;        // inputs of the first group that another shard holds
  // bf16 panels of pairs (see Bf16Product), [P, Kp / 2, 96] with Kp = num_inputs rounded up to 32.
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

  // [N, K] in the stored type, f32 of a quantised one; a copy when packed.
  at::Tensor plain_weight() const;
  // Outputs [begin, end) without the bias, sharing storage; begin divides by 48 when packed.
  Linear outputs(std::int64_t begin, std::int64_t end) const;
  // Row n of the weight as f32: what an embedding table is asked for. out: [K].
  void copy_row(std::int64_t n, float* out) const;
};

// The weight in panels; needs N rounded up to 48 times K numbers beside the plain one while it runs.
Linear pack(Linear plain, ThreadPool* pool = nullptr);

// Uninitialised memory for panels, on large pages where the system gives them.
at::Tensor empty_panels(at::IntArrayRef sizes, at::ScalarType type);

// x and out are f32 with row strides in elements. The bias is added when there is one. With a pool its threads share the
// outputs (few rows: decoding, short units), else this thread does all (one of many row tiles); the bits are the same.
void linear_tile(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear, float* out,
                 std::int64_t out_stride, bool accumulate, ThreadPool* pool = nullptr);

// C[m, n] = alpha * A[m, k] * op(B) + beta * C by the BLAS inside libtorch (MKL), all f32 row-major with row strides;
// transpose_b: B is [n, k]. The measure of our own products: `bench sgemm`.
void sgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
           std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride);

}  // namespace magister
