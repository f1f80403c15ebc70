// The common part of the two builds of bf16 products: rounding of activations to bf16, once for all panels, and the
// loops over rows and panels. One file per instruction set includes it.
// Legend: K inputs, Kp = K rounded up to 32; pairs: two rows of K of one column next to each other.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

constexpr std::int64_t kColumns = 48;            // columns of a panel
constexpr std::int64_t kStep = 32;               // the rows of a panel are padded to a multiple of this
constexpr std::int64_t kPairRow = 2 * kColumns;  // numbers per row of pairs
// Bytes of rounded activations at a time: half of a server core's L2.
constexpr std::int64_t kRoundedBytes = std::int64_t{1} << 20;

inline std::int64_t padded(std::int64_t k) { return (k + kStep - 1) / kStep * kStep; }

// Converts rows from f32 to bf16, rounded to nearest even, with zeros after K. out: [rows, Kp].
inline void round_rows(const Bf16Product& p, std::int64_t begin, std::int64_t rows, std::uint16_t* out) {
  const std::int64_t width = padded(p.k);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = p.a + (begin + r) * p.a_stride;
    std::uint16_t* to = out + r * width;
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t left = std::clamp<std::int64_t>(p.k - i, 0, 16);
      const __m512 values = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), left > 0 ? from + i : from);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
    }
  }
}

// Calls block(rounded activations, rows, panel, first row, first column, columns) for all of K of one panel and some
// rows.
template <typename Block>
void for_panels(const Bf16Product& p, std::int64_t rows_together, const Block& block) {
  struct alignas(64) Line {
    std::uint16_t numbers[32];
  };
  thread_local std::vector<Line> rounded;
  const std::int64_t width = padded(p.k);
  const std::int64_t most =
      std::clamp<std::int64_t>(kRoundedBytes / (2 * width) / rows_together * rows_together, rows_together, 256);
  for (std::int64_t begin = 0; begin < p.rows; begin += most) {
    const std::int64_t rows = std::min(most, p.rows - begin),
                       filled = (rows + rows_together - 1) / rows_together * rows_together;
    rounded.resize(static_cast<std::size_t>(filled * width / 32));
    auto* numbers = reinterpret_cast<std::uint16_t*>(rounded.data());
    round_rows(p, begin, rows, numbers);
    std::fill(numbers + rows * width, numbers + filled * width, std::uint16_t{0});
    for (std::int64_t column = 0; column < p.columns; column += kColumns) {
      block(numbers, rows, p.panels + column / kColumns * p.panel_stride, begin, column,
            std::min(kColumns, p.columns - column));
    }
  }
}

// The lanes of register n that a panel with this number of columns uses.
inline __mmask16 lanes_of(std::int64_t columns, int n) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(columns - 16 * n, 0, 16)) - 1);
}

inline void put(const Bf16Product& p, float* to, __mmask16 lanes, __m512 sum) {
  if (p.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum);
  _mm512_mask_storeu_ps(to, lanes, sum);
}

// Prefetches a panel for products of few rows, which read it from memory, once.
template <_mm_hint Hint = _MM_HINT_T0>
inline void fetch_ahead(const std::uint16_t* at, std::int64_t bytes) {
  constexpr std::int64_t kAhead = 8192;
  for (std::int64_t byte = 0; byte < bytes; byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead + byte, Hint);
}

}  // namespace
}  // namespace magister
