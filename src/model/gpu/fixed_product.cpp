// The choice of an algorithm; see fixed_product.h. Repeating the same rows shows whether the bits of a row depend on
// the number of rows or on its position.
#include "model/gpu/fixed_product.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/launch_watch.h"

namespace magister::gpu {
namespace {

// bf16 rounds by 2^-9, and the order of sums adds little. A result that is not the product at all would be wrong by the
// size of its numbers.
constexpr double kNear = 0.02;

ProductFactors repeated(const ProductFactors& block, std::int64_t rows) {
  const auto repeat = [&](const at::Tensor& all) { return repeated_rows(all, rows); };
  if (!block.is_fp8()) return {repeat(block.x_MK), block.weight_NK};
  return {repeat(block.x_MK.view(at::kByte)).view(block.x_MK.scalar_type()), block.weight_NK, repeat(block.scale_M1),
          block.weight_scale_1N};
}

// The product in f32; bf16 represents every 8-bit float exactly.
at::Tensor plain_product(const ProductFactors& factors) {
  if (!factors.is_fp8()) return at::mm(factors.x_MK, factors.weight_NK.t()).to(at::kFloat);
  const at::Tensor codes_MN = at::mm(factors.x_MK.to(at::kBFloat16), factors.weight_NK.to(at::kBFloat16).t());
  return codes_MN.to(at::kFloat) * factors.scale_M1 * factors.weight_scale_1N;
}

// Rows 0 to B-1, if all repetitions of them have the same bits. Undefined if not, or if the algorithm does not support
// this number of rows.
at::Tensor product_of_repeated(const ProductAlgorithms& algorithms, int algorithm, const ProductFactors& block,
                               std::int64_t rows, at::ScalarType out_type, const Queue& queue) {
  const std::int64_t B = block.x_MK.size(0);
  at::Tensor out_MN = at::empty({rows, block.weight_NK.size(0)}, block.x_MK.options().dtype(out_type));
  if (!algorithms.multiply(algorithm, repeated(block, rows), out_MN, queue)) return {};
  return rows_repeat(out_MN, B) ? out_MN.narrow(0, 0, std::min(B, rows)).clone() : at::Tensor();
}

bool gives_rows_their_own_bits(const ProductAlgorithms& algorithms, int algorithm, const ProductFactors& block,
                               at::ScalarType out_type, const Queue& queue, std::int64_t most_rows) {
  const at::Tensor wanted = product_of_repeated(algorithms, algorithm, block, block.x_MK.size(0), out_type, queue);
  if (!wanted.defined()) return false;
  const at::Tensor plain = plain_product(block);
  const at::Tensor apart = (wanted.to(at::kFloat) - plain).abs().max(), largest = plain.abs().max();
  if (!(apart.item<double>() <= kNear * largest.item<double>())) return false;  // false for NaN, too
  return std::all_of(kTriedRows.begin(), kTriedRows.end(), [&](std::int64_t rows) {
    if (rows > most_rows) return true;
    try {
      const at::Tensor bits = product_of_repeated(algorithms, algorithm, block, rows, out_type, queue);
      return bits.defined() && at::equal(bits, wanted.narrow(0, 0, bits.size(0)));
    } catch (const c10::OutOfMemoryError&) {
      log_warning(
          "no memory on the GPU to try products of {} rows with {} x {} weights (a run with more memory might choose "
          "another algorithm with other last bits)",
          rows, block.weight_NK.size(0), block.weight_NK.size(1));
      return true;
    }
  });
}

}  // namespace

at::Tensor repeated_rows(const at::Tensor& block_BK, std::int64_t rows) {
  const std::int64_t B = block_BK.size(0);
  return block_BK.repeat({(rows + B - 1) / B, 1}).narrow(0, 0, rows).contiguous();
}

bool rows_repeat(const at::Tensor& rows_MN, std::int64_t B) {
  const std::int64_t M = rows_MN.size(0);
  return M <= B || at::equal(rows_MN.narrow(0, B, M - B), rows_MN.narrow(0, 0, M - B));
}

void FixedProduct::multiply(const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const {
  const std::int64_t M = factors.x_MK.size(0), K = factors.x_MK.size(1), N = factors.weight_NK.size(0);
  const WatchedLaunch watched(factors.is_fp8() ? "cublasLtMatmul, e4m3" : "cublasLtMatmul", {M, N, K});
  MAGISTER_CHECK(algorithms->multiply(chosen, factors, out_MN, queue), ExitCode::kInternal,
                 "cuBLASLt does not multiply {} rows with {} x {} weights by an algorithm that was tested with {} "
                 "other numbers of rows (the pass has no result); report this",
                 M, N, K, kTriedRows.size());
}

FixedProduct choose_product(std::shared_ptr<const ProductAlgorithms> algorithms, const ProductFactors& block,
                            at::ScalarType out_type, const Queue& queue, std::int64_t most_rows) {
  for (int i = 0; algorithms != nullptr && i < algorithms->count(); ++i) {
    if (gives_rows_their_own_bits(*algorithms, i, block, out_type, queue, most_rows)) return {std::move(algorithms), i};
  }
  return {};
}

}  // namespace magister::gpu
