// bf16 products with AMX tiles: 32 x 48 sums stay in six tiles for all of K. An element is a chain over steps of 32 of
// K. The rows of a tile are independent, so the bits of an element do not depend on the number of rows. 16 rows of
// pairs of a panel can be loaded as three tiles without rearrangement. Source: Intel SDM, TDPBF16PS.
#include <cstring>

#include "model/cpu/kernels/bf16_products.h"

namespace magister {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr std::int64_t kTileRows = 16;
constexpr int kPairRowBytes = 2 * kPairRow;

// For 16 rows: tiles 0 to 2 hold sums, tile 3 activations, tiles 4 to 6 weights.
void sums_of_16(const std::uint16_t* rounded, std::int64_t width, const std::uint16_t* panel, bool streams,
                float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  for (std::int64_t k = 0; k < width; k += kStep) {
    const std::uint16_t* b = panel + k / 2 * kPairRow;
    if (streams) fetch_ahead(b, kTileRows * kPairRowBytes);
    _tile_loadd(3, rounded + k, static_cast<int>(2 * width));
    _tile_loadd(4, b, kPairRowBytes);
    _tile_dpbf16ps(0, 3, 4);
    _tile_loadd(5, b + 32, kPairRowBytes);
    _tile_dpbf16ps(1, 3, 5);
    _tile_loadd(6, b + 64, kPairRowBytes);
    _tile_dpbf16ps(2, 3, 6);
  }
  constexpr int kStride = kColumns * sizeof(float);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + 16, kStride);
  _tile_stored(2, sums + 32, kStride);
}

// For 32 rows: tiles 0 to 5 hold sums, tile 6 activations, tile 7 weights.
void sums_of_32(const std::uint16_t* rounded, std::int64_t width, const std::uint16_t* panel, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  const int stride = static_cast<int>(2 * width);
  for (std::int64_t k = 0; k < width; k += kStep) {
    const std::uint16_t* b = panel + k / 2 * kPairRow;
    _tile_loadd(6, rounded + k, stride);
    _tile_loadd(7, b, kPairRowBytes);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, b + 32, kPairRowBytes);
    _tile_dpbf16ps(1, 6, 7);
    _tile_loadd(7, b + 64, kPairRowBytes);
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(6, rounded + kTileRows * width + k, stride);
    _tile_dpbf16ps(5, 6, 7);
    _tile_loadd(7, b + 32, kPairRowBytes);
    _tile_dpbf16ps(4, 6, 7);
    _tile_loadd(7, b, kPairRowBytes);
    _tile_dpbf16ps(3, 6, 7);
  }
  constexpr int kStride = kColumns * sizeof(float);
  float* below = sums + kTileRows * kColumns;
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + 16, kStride);
  _tile_stored(2, sums + 32, kStride);
  _tile_stored(3, below, kStride);
  _tile_stored(4, below + 16, kStride);
  _tile_stored(5, below + 32, kStride);
}

}  // namespace

void multiply_bf16_amx(const Bf16Product& p) {
  alignas(64) float sums[2 * kTileRows * kColumns];
  const std::int64_t width = padded(p.k);
  const TileConfig config;
  _tile_loadconfig(&config);
  for_panels(p, kTileRows,
             [&](const std::uint16_t* rounded, std::int64_t rows, const std::uint16_t* panel, std::int64_t first,
                 std::int64_t column, std::int64_t columns) {
               for (std::int64_t r = 0; r < rows;) {
                 const std::int64_t block = rows - r > kTileRows ? 2 * kTileRows : kTileRows;
                 if (block == kTileRows) {
                   sums_of_16(rounded + r * width, width, panel, p.rows <= kTileRows, sums);
                 } else {
                   sums_of_32(rounded + r * width, width, panel, sums);
                 }
                 for (std::int64_t i = 0; i < std::min(block, rows - r); ++i) {
                   float* to = p.c + (first + r + i) * p.c_stride + column;
                   for (int n = 0; n < 3; ++n)
                     put(p, to + 16 * n, lanes_of(columns, n), _mm512_load_ps(sums + i * kColumns + 16 * n));
                 }
                 r += block;
               }
             });
  _tile_release();  // otherwise every context switch would save 8 kB of tiles
}

}  // namespace magister
