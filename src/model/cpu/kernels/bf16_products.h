// What the two builds of bf16 products share: activations rounded to bf16 once for all panels, and the loops over rows and panels.
// Included by one file an instruction set. Legend: K inputs, Kp = K rounded up to 32; pairs: two rows of K of one column side by side.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

constexpr std::int64_t kColumns = 48;            // of a panel
constexpr std::int64_t kStep = 32;               // rows of K that a panel is filled up to a multiple of
constexpr std::int64_t kPairRow = 2 * kColumns;  // numbers of a row of pairs
constexpr std::int64_t kRoundedBytes = std::int64_t{1}
                                       << 20;  // of rounded activations at a time: half of a server core's L2

inline std::int64_t padded(std::int64_t k) { return (k + kStep - 1) / kStep * kStep; }

// Rows of f32 -> bf16, round to nearest even, with zeros behind K. out: [rows, Kp].
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

// block(rounded activations, rows, panel, first row, first column, columns): all of K of one panel for some rows.
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

// Lanes of register n of a panel with so many columns.
inline __mmask16 lanes_of(std::int64_t columns, int n) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(columns - 16 * n, 0, 16)) - 1);
}

inline void put(const Bf16Product& p, float* to, __mmask16 lanes, __m512 sum) {
  if (p.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum);
  _mm512_mask_storeu_ps(to, lanes, sum);
}

// What few rows read next: the panels come from memory then, and are read once.
inline void fetch_ahead(const std::uint16_t* at, std::int64_t bytes) {
  constexpr std::int64_t kAhead = 8192;
  for (std::int64_t byte = 0; byte < bytes; byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead + byte, _MM_HINT_T0);
}

}  // namespace
}  // namespace magister
