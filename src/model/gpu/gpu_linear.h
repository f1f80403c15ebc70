// GpuLinear: a linear layer's slice on a GPU: plain rows, or codes with scales as the decode products read them.
// Few rows go through our own products, which read the weights once; many through cuBLAS, codes made plain for it first.
// Legend: M rows, K inputs, N outputs, G groups of inputs that share a scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/gpu/launch.h"
#include "magister/model/matmul.h"
#include "model/gpu/product_kernels.h"

namespace magister::gpu {

struct GpuLinear {
  at::Tensor weight_NK;  // in the activations' type; undefined of a quantised one
  at::Tensor bias_N;     // f32 or undefined
  std::int64_t inputs = 0, outputs = 0;
  // Of a quantised one: bytes of codes, rows filled up to 16; scales and offsets as 16-bit words.
  at::Tensor codes_NB, scales_NG, offsets_NG;
  QuantScheme scheme{};
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  bool half_scales = false;
  std::int64_t lead = 0;
  // Of an fp8 one: e4m3 [N, K] and a scale an output, f32 [1, N].
  at::Tensor fp8_NK, fp8_scales_1N;

  bool is_quantized() const { return scheme.on(); }
  StoredWeight stored() const;
  std::uint64_t num_bytes() const;
};

// A slice that was read to the CPU -> the device. Plain weights keep their type, packed codes their numbers.
GpuLinear to_device(const Linear& linear, at::Device device);

// bf16 weights as e4m3 with a scale an output, for products of 8-bit floats (compute capability 9.0 and newer; 8.9 has them, too): the rows
// of x get a scale each on the way. Weights whose sizes are no multiples of 16, which the tensor cores do not take, stay as they are.
void to_fp8(GpuLinear& linear, const Queue& queue);

// [N, K] in `type` (kBFloat16 or kFloat): the weights themselves, or what the codes stand for.
at::Tensor plain_weight(const GpuLinear& linear, at::ScalarType type, const Queue& queue);

// out[M, N] = x[M, K] * weight^T + bias, in out_type (that of x, or kFloat). f32 sums; bf16 results are rounded once. With bf16 and at
// most kMostDecodeRows rows a row's bits do not depend on the others.
at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue);
// The same in x's type by cuBLAS in tiles of exactly kTileRows rows, the last one filled up: cuBLAS chooses its order of sums by the
// number of rows, so that here a row's bits do not depend on the others, however many. 256 rows are more than the 206 from which an H200
// is bound by arithmetic and no longer by the weights.
constexpr std::int64_t kTileRows = 256;
at::Tensor product_in_tiles(const GpuLinear& linear, const at::Tensor& x_MK, const Queue& queue);
// The same for such few rows into a place that stays (for CUDA graphs): out_MN bf16 or f32, contiguous.
void product_of_few(const GpuLinear& linear, const at::Tensor& x_MK, at::Tensor& out_MN, const Queue& queue);

}  // namespace magister::gpu
