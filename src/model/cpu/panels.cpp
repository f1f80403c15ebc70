// Panels of f32 and bf16 matrices, made with 8 x 8 transposes in AVX registers; see panels.h.
#include "magister/model/cpu/panels.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

constexpr std::int64_t kPanelWidth = Linear::kPanel;
constexpr std::int64_t kTurnBlock = 8;

// to[c, r] = from[r, c] for 8 x 8 numbers.
void turn_block(const float* from, std::int64_t stride, float* to, std::int64_t to_stride) {
  __m256 row[kTurnBlock], pair[kTurnBlock], quad[kTurnBlock];
  for (int r = 0; r < kTurnBlock; ++r) row[r] = _mm256_loadu_ps(from + r * stride);
  for (int r = 0; r < kTurnBlock; r += 2) {
    pair[r] = _mm256_unpacklo_ps(row[r], row[r + 1]);
    pair[r + 1] = _mm256_unpackhi_ps(row[r], row[r + 1]);
  }
  for (int r = 0; r < kTurnBlock; r += 4) {
    quad[r] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0x44);
    quad[r + 1] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0xEE);
    quad[r + 2] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0x44);
    quad[r + 3] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0xEE);
  }
  for (int c = 0; c < 4; ++c) {
    _mm256_storeu_ps(to + c * to_stride, _mm256_permute2f128_ps(quad[c], quad[c + 4], 0x20));
    _mm256_storeu_ps(to + (c + 4) * to_stride, _mm256_permute2f128_ps(quad[c], quad[c + 4], 0x31));
  }
}

// to[c, r] = from[r, c].
void turn(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* to,
          std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / kTurnBlock * kTurnBlock, whole_columns = columns / kTurnBlock * kTurnBlock;
  for (std::int64_t r = 0; r < whole_rows; r += kTurnBlock) {
    for (std::int64_t c = 0; c < whole_columns; c += kTurnBlock)
      turn_block(from + r * stride + c, stride, to + c * to_stride + r, to_stride);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      to[c * to_stride + r] = from[r * stride + c];
  }
}

void check_matrix(const at::Tensor& matrix) {
  MAGISTER_ASSERT(matrix.dim() == 2 && matrix.scalar_type() == at::kFloat && matrix.is_cpu() &&
                  (matrix.size(1) <= 1 || matrix.stride(1) == 1));
}

Linear empty_linear(std::int64_t n, std::int64_t k) {
  return {{}, {}, at::empty({(n + kPanelWidth - 1) / kPanelWidth, k, kPanelWidth}, at::kFloat), n};
}

}  // namespace

Linear panels_of_weight(const at::Tensor& weight_NK) {
  check_matrix(weight_NK);
  const std::int64_t n = weight_NK.size(0), k = weight_NK.size(1);
  Linear out = empty_linear(n, k);
  for (std::int64_t first = 0; first < n; first += kPanelWidth) {
    float* const panel = out.panels_PKW.data_ptr<float>() + first * k;
    const std::int64_t columns = std::min(kPanelWidth, n - first);
    if (columns < kPanelWidth) std::fill_n(panel, k * kPanelWidth, 0.0f);
    turn(weight_NK.const_data_ptr<float>() + first * weight_NK.stride(0), columns, k, weight_NK.stride(0), panel,
         kPanelWidth);
  }
  return out;
}

Linear panels_of_rows(const at::Tensor& rows_KN) {
  check_matrix(rows_KN);
  const std::int64_t k = rows_KN.size(0), n = rows_KN.size(1);
  Linear out = empty_linear(n, k);
  for (std::int64_t first = 0; first < n; first += kPanelWidth) {
    float* const panel = out.panels_PKW.data_ptr<float>() + first * k;
    const std::int64_t columns = std::min(kPanelWidth, n - first);
    if (columns < kPanelWidth) std::fill_n(panel, k * kPanelWidth, 0.0f);
    for (std::int64_t row = 0; row < k; ++row) {
      std::memcpy(panel + row * kPanelWidth, rows_KN.const_data_ptr<float>() + row * rows_KN.stride(0) + first,
                  static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
  return out;
}

// A pair of two bf16 inputs of an output has the size of an f32 number, so the f32 code can transpose pairs.
Linear bf16_panels_of_weight(const at::Tensor& weight_NK) {
  const std::int64_t n = weight_NK.size(0), k = weight_NK.size(1);
  if (!cpu_prefers_bf16()) return panels_of_weight(weight_NK.to(at::kBFloat16).to(at::kFloat));
  const std::int64_t filled = (k + Linear::kPairDepth - 1) / Linear::kPairDepth * Linear::kPairDepth;
  const at::Tensor rounded_NK = at::empty({n, filled}, at::kBFloat16);
  rounded_NK.narrow(1, 0, k).copy_(weight_NK);
  rounded_NK.narrow(1, k, filled - k).zero_();
  Linear out = panels_of_weight(rounded_NK.view(at::kFloat));
  out.panels_PKW = out.panels_PKW.view(at::kBFloat16);
  out.num_inputs = k;
  out.pairs = true;
  return out;
}

at::Tensor transposed(const at::Tensor& x_MN) {
  check_matrix(x_MN);
  const std::int64_t m = x_MN.size(0), n = x_MN.size(1), stride = (m + 15) / 16 * 16 + 16;
  at::Tensor out = at::empty({n, stride}, at::kFloat);
  turn(x_MN.const_data_ptr<float>(), m, n, x_MN.stride(0), out.data_ptr<float>(), stride);
  return out.narrow(1, 0, m);
}

}  // namespace magister
