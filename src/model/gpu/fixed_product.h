// FixedProduct: one cuBLASLt algorithm per weight for any number of rows. cuBLAS chooses its order of sums by the
// number of rows, so the bits of a row would depend on the number of its neighbours. An algorithm that was tested once
// to give a row the same bits among any number of others multiplies a whole pass at once, without tiles and padding.
// Legend: M rows, K inputs, N outputs, B rows of a block that is repeated.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister::gpu {

// Rows and a weight, both contiguous: bf16 or f32, or both e4m3 with f32 scales, one per row and one per output.
struct ProductFactors {
  at::Tensor x_MK, weight_NK;
  at::Tensor scale_M1{}, weight_scale_1N{};  // only for 8-bit floats

  bool is_fp8() const { return scale_M1.defined(); }
};

// Rows of a pass over whole texts; the library sorts its algorithms by speed for this number.
constexpr std::int64_t kPassRows = 2048;

// The algorithms of a library for products with weights of one shape, the presumably fastest first.
class ProductAlgorithms {
 public:
  virtual ~ProductAlgorithms() = default;
  virtual int count() const = 0;
  // out[M, N] = x[M, K] * weight[N, K]^T, times the scales if there are any; contiguous; queued. Returns false if the
  // algorithm does not support these factors.
  virtual bool multiply(int algorithm, const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const = 0;
};

// The algorithms of cuBLASLt that do not divide sums (no split of K, no workspace and therefore no stream-K), for
// factors of `type` (kBFloat16, kFloat or kFloat8_e4m3fn) and results of out_type. Null on the host, in a build without
// GPU code, and where there are none. Scales per row and per output need cuBLAS 12.9 and compute capability 9.0.
// asked_rows: the number of rows by which the library sorts.
std::shared_ptr<const ProductAlgorithms> lt_algorithms(std::int64_t N, std::int64_t K, at::ScalarType type,
                                                       at::ScalarType out_type, const Queue& queue,
                                                       std::int64_t asked_rows = kPassRows);

// True if this process has loaded a cuBLASLt with all functions used here; libtorch's GPU libraries load it.
bool has_cublas_lt();

// Numbers of rows that are tested: one, numbers near the library's tile sizes, whole passes of prompts (8,192 tokens),
// and a unit of 16,384.
constexpr std::array<std::int64_t, 12> kTriedRows = {1, 7, 64, 65, 129, 256, 300, 1000, 2048, 4096, 8192, 16384};

// Rows of the block that is repeated. The number is odd, so that each row comes to every position of a tile of 64, 128
// or 256 rows.
constexpr std::int64_t kTriedBlock = 61;

// [rows, K]: the rows of the block [B, K], repeated.
at::Tensor repeated_rows(const at::Tensor& block_BK, std::int64_t rows);
// True if row i has the same bits as row i - B, for every i >= B (NaN equals nothing). Waits for the device.
bool rows_repeat(const at::Tensor& rows_MN, std::int64_t B);

struct FixedProduct {
  std::shared_ptr<const ProductAlgorithms> algorithms;
  int chosen = -1;

  bool defined() const { return chosen >= 0; }
  // See ProductAlgorithms. Throws Error(kInternal) if the chosen algorithm does not support the factors.
  void multiply(const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const;
};

// The first algorithm that supports all of kTriedRows, gives every row of `block` (factors with B rows) the same bits
// for each of these numbers at every position, and is close to at::mm. A number of rows for which the device has no
// memory is skipped, because a pass could not use it either. Undefined if there is none. most_rows: passes never have
// more rows, so larger numbers are not tested.
FixedProduct choose_product(std::shared_ptr<const ProductAlgorithms> algorithms, const ProductFactors& block,
                            at::ScalarType out_type, const Queue& queue, std::int64_t most_rows = kTriedRows.back());

}  // namespace magister::gpu
