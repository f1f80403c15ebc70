// Panels made with 8 x 8 transposes of 32-bit numbers in AVX registers; see panels.h. A pair of two bf16 inputs of an
// output has the size of an f32 number.
#include "magister/model/cpu/panels.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/panel_memory.h"

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

void check_matrix(const at::Tensor& matrix) {
  MAGISTER_ASSERT(matrix.dim() == 2 && matrix.scalar_type() == at::kFloat && matrix.is_cpu() &&
                  (matrix.size(1) <= 1 || matrix.stride(1) == 1));
}

std::int64_t filled_pairs(std::int64_t k) {
  return (k + Linear::kPairDepth - 1) / Linear::kPairDepth * Linear::kPairDepth;
}

// Writes rows of the weight as outputs [column, column + rows) of one panel.
void pack_into_panel(const at::Tensor& rows_RK, const Linear& packed, at::Tensor panel_KW, std::int64_t column) {
  const std::int64_t rows = rows_RK.size(0), k = rows_RK.size(1);
  if (packed.pairs && (k % 2 != 0 || rows_RK.stride(0) % 2 != 0)) {
    at::Tensor even_RK = at::zeros({rows, k + k % 2}, rows_RK.options());
    even_RK.narrow(1, 0, k).copy_(rows_RK);
    return pack_into_panel(even_RK, packed, std::move(panel_KW), column);
  }
  const bool wide = rows_RK.scalar_type() == at::kFloat;
  if (!wide && !packed.pairs) {
    panel_KW.narrow(1, column, rows).copy_(rows_RK.t());
    return;
  }
  const std::int64_t numbers = wide ? 1 : 2;  // in 32 bits
  turn(static_cast<const float*>(rows_RK.const_data_ptr()), rows, k / numbers, rows_RK.stride(0) / numbers,
       static_cast<float*>(panel_KW.data_ptr()) + column, kPanelWidth);
}

Linear empty_linear(std::int64_t n, std::int64_t k) {
  return {{}, {}, at::empty({(n + kPanelWidth - 1) / kPanelWidth, k, kPanelWidth}, at::kFloat), n};
}

}  // namespace

Linear empty_packed(std::int64_t N, std::int64_t K, at::ScalarType dtype) {
  const std::int64_t panels = (N + kPanelWidth - 1) / kPanelWidth;
  Linear out;
  out.num_outputs = N;
  out.pairs = dtype == at::kBFloat16 && cpu_prefers_bf16();
  if (out.pairs) {
    out.num_inputs = K;
    out.panels_PKW = empty_panels({panels, filled_pairs(K) / 2, 2 * kPanelWidth}, dtype);
  } else {
    out.panels_PKW = empty_panels({panels, K, kPanelWidth}, dtype);
  }
  return out;
}

void clear_padding(Linear& packed) {
  at::Tensor& panels_PKW = packed.panels_PKW;
  if (packed.num_outputs % kPanelWidth != 0) panels_PKW.select(0, panels_PKW.size(0) - 1).zero_();
  if (!packed.pairs) return;
  const std::int64_t whole = (packed.num_inputs + 1) / 2, filled = panels_PKW.size(1);
  if (whole < filled) panels_PKW.narrow(1, whole, filled - whole).zero_();
}

void pack_rows(const at::Tensor& rows_RK, std::int64_t first, Linear& packed) {
  MAGISTER_ASSERT(rows_RK.dim() == 2 && rows_RK.size(1) == packed.in_features() && rows_RK.is_cpu() &&
                  rows_RK.scalar_type() == packed.dtype() && (rows_RK.size(1) <= 1 || rows_RK.stride(1) == 1));
  for (std::int64_t row = 0; row < rows_RK.size(0);) {
    const std::int64_t output = first + row, column = output % kPanelWidth,
                       count = std::min(kPanelWidth - column, rows_RK.size(0) - row);
    pack_into_panel(rows_RK.narrow(0, row, count), packed, packed.panels_PKW.select(0, output / kPanelWidth), column);
    row += count;
  }
}

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
  const std::int64_t k = rows_KN.size(0), n = rows_KN.size(1), stride = rows_KN.stride(0);
  Linear out = empty_linear(n, k);
  float* const panels = out.panels_PKW.data_ptr<float>();
  const float* const from = rows_KN.const_data_ptr<float>();
  if (n % kPanelWidth != 0) std::fill_n(panels + n / kPanelWidth * k * kPanelWidth, k * kPanelWidth, 0.0f);
  // A few rows at a time, so that they are read from end to end.
  constexpr std::int64_t kBand = 8;
  for (std::int64_t row = 0; row < k; row += kBand) {
    for (std::int64_t first = 0; first < n; first += kPanelWidth) {
      copy_to_panel(from + row * stride + first, std::min(kBand, k - row), std::min(kPanelWidth, n - first), stride,
                    panels + first * k + row * kPanelWidth);
    }
  }
  return out;
}

Linear bf16_panels_of_weight(const at::Tensor& weight_NK) {
  const std::int64_t n = weight_NK.size(0), k = weight_NK.size(1);
  if (!cpu_prefers_bf16()) return panels_of_weight(weight_NK.to(at::kBFloat16).to(at::kFloat));
  const std::int64_t filled = filled_pairs(k);
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

void copy_to_panel(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < rows; ++row, from += stride, to += kPanelWidth) {
    if (columns == kPanelWidth) {
      std::memcpy(to, from, kPanelWidth * sizeof(float));  // of a fixed size: a few moves instead of a call
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
}

}  // namespace magister
