// bf16 products with VDPBF16PS: an element is one chain over the pairs of K in order, whatever the number of rows.
#include "model/cpu/kernels/bf16_products.h"

namespace magister {
namespace {

constexpr int kBlockRows = 8;
// The first block of rows reads a panel from memory. With fewer rows it waits for nothing but the memory, and the CPU's
// own prefetcher reads 30 GB/s (Zen 4); from 6 rows on prefetches into L2 help: 26 GB/s instead of 21 with 8 rows.
constexpr int kFetchedRows = 6;

template <int Rows>
void multiply_block(const Bf16Product& p, const std::uint16_t* rounded, const std::uint16_t* panel, float* out,
                    std::int64_t columns, bool is_first) {
  const std::int64_t width = padded(p.k);
  __m512 sum[Rows][3];
  for (auto& row : sum)
    for (__m512& lanes : row) lanes = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < width; k += 8) {
    if (Rows >= kFetchedRows && is_first) fetch_ahead<_MM_HINT_T1>(panel + k / 2 * kPairRow, 4 * kPairRow * 2);
#pragma GCC unroll 4
    for (std::int64_t i = k; i < k + 8; i += 2) {
      __m512bh weights[3];
      for (int n = 0; n < 3; ++n)
        weights[n] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + i / 2 * kPairRow + 32 * n));
      for (int r = 0; r < Rows; ++r) {
        std::int32_t pair;
        __builtin_memcpy(&pair, rounded + r * width + i, sizeof pair);
        const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
        for (int n = 0; n < 3; ++n) sum[r][n] = _mm512_dpbf16_ps(sum[r][n], x, weights[n]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int n = 0; n < 3; ++n) put(p, out + r * p.c_stride + 16 * n, lanes_of(columns, n), sum[r][n]);
  }
}

template <int Rows = kBlockRows>
void multiply_rows(const Bf16Product& p, std::int64_t rows, const std::uint16_t* rounded, const std::uint16_t* panel,
                   float* out, std::int64_t columns, bool is_first) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Rows - 1>(p, rows, rounded, panel, out, columns, is_first);
  }
  multiply_block<Rows>(p, rounded, panel, out, columns, is_first);
}

}  // namespace

void multiply_bf16_avx512(const Bf16Product& p) {
  const std::int64_t width = padded(p.k);
  for_panels(p, kBlockRows,
             [&](const std::uint16_t* rounded, std::int64_t rows, const std::uint16_t* panel, std::int64_t first,
                 std::int64_t column, std::int64_t columns) {
               for (std::int64_t r = 0; r < rows; r += kBlockRows) {
                 multiply_rows(p, std::min<std::int64_t>(rows - r, kBlockRows), rounded + r * width, panel,
                               p.c + (first + r) * p.c_stride + column, columns, r == 0);
               }
             });
}

}  // namespace magister
