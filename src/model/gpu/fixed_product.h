// One algorithm a weight. cuBLAS chooses its order of sums by the number of rows, so a row's bits would depend on how many stand beside it. An
// algorithm that was chosen once, by trying which gives a row the same bits among any number of others, multiplies a whole pass at once: no
// tiles, no filled-up rows. Legend: M rows, K inputs, N outputs, B rows of a block that is repeated.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister::gpu {

// Rows and a weight, both contiguous: of bf16 or f32, or both e4m3 with scales in f32, one a row and one an output.
struct ProductFactors {
  at::Tensor x_MK, weight_NK;
  at::Tensor scale_M1{}, weight_scale_1N{};  // of 8-bit floats alone

  bool is_fp8() const { return scale_M1.defined(); }
};

// Of a pass over whole texts, as far as a library's order of speed is concerned.
constexpr std::int64_t kPassRows = 2048;

// A library's ways to multiply rows with weights of one shape, what it holds for the fastest first.
class ProductAlgorithms {
 public:
  virtual ~ProductAlgorithms() = default;
  virtual int count() const = 0;
  // out[M, N] = x[M, K] * weight[N, K]^T, with their scales, contiguous; queued. False: this one does not take such factors.
  virtual bool multiply(int algorithm, const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const = 0;
};

// Those of cuBLASLt with whole sums (no split of K, no work place, so no stream-K either), for factors of `type` (kBFloat16, kFloat or
// kFloat8_e4m3fn) and results of out_type. Null on the host, in a build without GPU code, and where there are none: scales a row and an output
// are taken from cuBLAS 12.9 on, on compute capability 9.0. asked_rows: for which the library puts its fastest first.
std::shared_ptr<const ProductAlgorithms> lt_algorithms(std::int64_t N, std::int64_t K, at::ScalarType type,
                                                       at::ScalarType out_type, const Queue& queue,
                                                       std::int64_t asked_rows = kPassRows);

// Whether this process has loaded a cuBLASLt with every function that is asked of it: with libtorch's GPU libraries it has.
bool lt_is_there();

// Numbers of rows that are tried: one, those around the sizes of a library's tiles, and whole passes: of prompts (8,192 tokens), and a unit of 16,384.
constexpr std::array<std::int64_t, 12> kTriedRows = {1, 7, 64, 65, 129, 256, 300, 1000, 2048, 4096, 8192, 16384};

// Rows of the block that is repeated: odd, so that among many of them each of its rows stands at every place of a tile of 64, 128 or 256 rows.
constexpr std::int64_t kTriedBlock = 61;

// [rows, K]: those of the block [B, K] again and again.
at::Tensor repeated_rows(const at::Tensor& block_BK, std::int64_t rows);
// Whether row i has the bits of row i - B, for every i from B on (NaN equals nothing). Waits for the device.
bool rows_repeat(const at::Tensor& rows_MN, std::int64_t B);

struct FixedProduct {
  std::shared_ptr<const ProductAlgorithms> algorithms;
  int chosen = -1;

  bool defined() const { return chosen >= 0; }
  // As ProductAlgorithms; throws Error(kInternal) where the chosen one does not take them.
  void multiply(const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const;
};

// The first algorithm that takes all of kTriedRows, gives every row of `block` (factors with B rows) the same bits for each of them at every
// place, and is near at::mm; a number of rows for which the device has no memory is left out, for nor will a pass have it. Undefined: there is none.
// most_rows: of a pass, where there are never more.
FixedProduct choose_product(std::shared_ptr<const ProductAlgorithms> algorithms, const ProductFactors& block,
                            at::ScalarType out_type, const Queue& queue, std::int64_t most_rows = kTriedRows.back());

}  // namespace magister::gpu
