// The choice; see fixed_product.h. Rows of the same numbers again and again show both what the number of rows changes and what their place does.
#include "model/gpu/fixed_product.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"

namespace magister::gpu {
namespace {

// bf16 rounds by 2^-9; the order of sums adds little. What is not the product at all is off by as much as its numbers are large.
constexpr double kNear = 0.02;

// Rows 0 .. B-1 for which every other row at a multiple of B has the same bits; undefined: some have not, or it does not take so many.
at::Tensor repeated_rows(const ProductAlgorithms& algorithms, int algorithm, const at::Tensor& weight_NK,
                         const at::Tensor& block_BK, std::int64_t rows, at::ScalarType out_type) {
  const std::int64_t B = block_BK.size(0), times = (rows + B - 1) / B;
  const at::Tensor x_MK = block_BK.repeat({times, 1}).narrow(0, 0, rows).contiguous();
  at::Tensor out_MN = at::empty({times * B, weight_NK.size(0)}, x_MK.options().dtype(out_type));
  at::Tensor computed = out_MN.narrow(0, 0, rows);
  if (!algorithms.multiply(algorithm, x_MK, weight_NK, computed)) return {};
  const at::Tensor first = out_MN.narrow(0, 0, std::min(B, rows)).clone();
  for (std::int64_t row = B; row < rows; row += B) {
    const std::int64_t count = std::min(B, rows - row);
    if (!at::equal(out_MN.narrow(0, row, count), first.narrow(0, 0, count))) return {};
  }
  return first;
}

bool gives_rows_their_own_bits(const ProductAlgorithms& algorithms, int algorithm, const at::Tensor& weight_NK,
                               const at::Tensor& block_BK, at::ScalarType out_type) {
  const std::int64_t B = block_BK.size(0);
  const at::Tensor wanted = repeated_rows(algorithms, algorithm, weight_NK, block_BK, B, out_type);
  if (!wanted.defined()) return false;
  const at::Tensor plain = at::mm(block_BK, weight_NK.t()).to(at::kFloat);
  const at::Tensor apart = (wanted.to(at::kFloat) - plain).abs().max(), largest = plain.abs().max();
  if (!(apart.item<double>() <= kNear * largest.item<double>())) return false;  // nor what is not a number
  return std::all_of(kTriedRows.begin(), kTriedRows.end(), [&](std::int64_t rows) {
    try {
      const at::Tensor bits = repeated_rows(algorithms, algorithm, weight_NK, block_BK, rows, out_type);
      return bits.defined() && at::equal(bits, wanted.narrow(0, 0, bits.size(0)));
    } catch (const c10::OutOfMemoryError&) {
      return true;
    }
  });
}

}  // namespace

void FixedProduct::multiply(const at::Tensor& x_MK, const at::Tensor& weight_NK, at::Tensor& out_MN) const {
  MAGISTER_CHECK(algorithms->multiply(chosen, x_MK, weight_NK, out_MN), ExitCode::kInternal,
                 "cuBLASLt does not multiply {} rows with {} x {} weights by the algorithm that it has taken for {} "
                 "others (the pass has no result); report this",
                 x_MK.size(0), weight_NK.size(0), weight_NK.size(1), kTriedRows.size());
}

FixedProduct choose_product(std::shared_ptr<const ProductAlgorithms> algorithms, const at::Tensor& weight_NK,
                            const at::Tensor& block_BK, at::ScalarType out_type) {
  for (int i = 0; algorithms != nullptr && i < algorithms->count(); ++i) {
    if (gives_rows_their_own_bits(*algorithms, i, weight_NK, block_BK, out_type)) return {std::move(algorithms), i};
  }
  return {};
}

}  // namespace magister::gpu
