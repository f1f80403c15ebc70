// The work of a warp of grouped attention on one page of 48 keys in bf16: copies past the registers, scores and
// weighted values by the tensor cores. Queries are the products' side of eight, so groups of up to eight heads waste no
// rows. Pages of codes: grouped_attention_codes.h.
// Source: the PTX ISA's cp.async and fragments of mma.m16n8k16. Legend: as in attention_kernels.h; g = lane / 4,
// p = lane % 4.
#pragma once

#include "model/gpu/grouped_attention_shares.h"

namespace magister::gpu {

// Bytes of a row of keys or values in shared memory: whole groups of eight pieces of 16 bytes.
template <int kNumbers>
constexpr int kStagedPitch = (2 * kNumbers + 127) / 128 * 128;

// kE, kV: E and V, multiples of 16. kTiles: groups of eight query heads.
template <int kE, int kV, int kTiles>
struct GroupedPage : GroupedShares<kV, kTiles> {
  using Shares = GroupedShares<kV, kTiles>;
  using Shares::kKeyTiles, Shares::kValueParts;
  using typename Shares::Page, typename Shares::PageSums, typename Shares::Scores;
  static constexpr int kKeyPitch = kStagedPitch<kE>, kValuePitch = kStagedPitch<kV>;
  static constexpr int kKeyBytes = kPageSlots * kKeyPitch, kValueBytes = kPageSlots * kValuePitch;
  static constexpr int kKeySteps = (kE + 31) / 32;

  // Offset of 16 bytes of a row in shared memory. Pieces are permuted so that eight lanes which read at the same time
  // use different banks: four pieces of two neighbouring rows in score(), two pieces of every second row in
  // add_values().
  MAGISTER_DEVICE static int staged(int row, int piece, int pitch) {
    return row * pitch + (piece ^ ((row & 6) ^ ((row & 1) * 4))) * 16;
  }

  // Queues the copies of a page as one group; slots that the row does not see become zeros.
  template <int kNumbers, typename Thread>
  MAGISTER_DEVICE static void copy_rows(Thread& t, const Bf16* pages, const Page& page, unsigned char* to) {
    constexpr int kPieces = kNumbers / 8;
    static_assert(kPageSlots * kPieces % kWarp == 0);
    if (page.is_seen()) {
      const Bf16* const from = pages + page.row * kNumbers + t.lane() * 8;
      MAGISTER_UNROLL
      for (int i = 0; i < kPageSlots * kPieces / kWarp; ++i) {
        const int index = i * kWarp + t.lane(), row = index / kPieces;
        t.copy_16(to + staged(row, index % kPieces, kStagedPitch<kNumbers>), from + i * kWarp * 8,
                  row >= page.low && row < page.high);
      }
    }
    t.end_copies();
  }

  // Pieces after E that score() reads; nothing else writes them.
  template <typename Thread>
  MAGISTER_DEVICE static void clear_ends_of_keys(Thread& t, unsigned char* keys) {
    constexpr int kPieces = kE / 8;
    if constexpr (kPieces < 4 * kKeySteps) {
      for (int row = t.lane(); row < kPageSlots; row += kWarp) {
        for (int piece = kPieces; piece < 4 * kKeySteps; ++piece)
          *reinterpret_cast<Words4*>(keys + staged(row, piece, kKeyPitch)) = Words4{};
      }
    }
  }

  // Keys on the left side, queries on the right side. Inputs are numbered so that a lane's 16 bytes are its part of two
  // products. Queries are read again for each page: they are in the L1 cache, and would take 16 to 32 registers. q:
  // the first of `heads` queries; the others' columns are those of the last one, and are not used.
  template <typename Thread>
  MAGISTER_DEVICE static void score(Thread& t, const AttentionArguments<Bf16>& a, const Bf16* q, int heads,
                                    const unsigned char* keys, Scores& scores) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    scores = {};
    MAGISTER_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      const int piece = step * 4 + p, e = piece * 8 < kE ? piece * 8 : kE - 8;
      Words4 right[kTiles], low[kKeyTiles], high[kKeyTiles];
      MAGISTER_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const int head = n * 8 + g < heads ? n * 8 + g : heads - 1;
        right[n] = load_16(q + head * kE + e);
      }
      MAGISTER_UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        low[tile] = load_16(keys + staged(tile * 16 + g, piece, kKeyPitch));
        high[tile] = load_16(keys + staged(tile * 16 + 8 + g, piece, kKeyPitch));
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles * kKeyTiles; ++i) {  // products of the same sums are far apart
        const int two = i / (kTiles * kKeyTiles) * 2, n = i / kKeyTiles % kTiles, tile = i % kKeyTiles;
        t.mma_bf16(scores.of[tile][n],
                   {low[tile].word[two], high[tile].word[two], low[tile].word[two + 1], high[tile].word[two + 1]},
                   {right[n].word[two], right[n].word[two + 1]});
      }
    }
    MAGISTER_UNROLL
    for (int i = 0; i < kKeyTiles * kTiles * 4; ++i) scores.of[i / (4 * kTiles)][i / 4 % kTiles][i % 4] *= a.scale;
    if (a.softcap > 0) Shares::cap(a.softcap, scores);
  }

  // Adds the values of a page, weighted. The left side's rows are numbers of the values: row g of product j is number
  // 8g + 2j of a part and row g + 8 the next one, so that a lane's 16 bytes of a key are its part of four products.
  template <typename Thread>
  MAGISTER_DEVICE static void add_values(Thread& t, const Page&, const unsigned char* values, const Scores& scores,
                                         PageSums& sums) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    MAGISTER_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      std::uint32_t upper[kTiles][2], lower[kTiles][2];
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        const float* const two = &scores.of[tile][i / 2][i % 2 * 2];
        Shares::split(t, {two[0], two[1]}, upper[i / 2][i % 2], lower[i / 2][i % 2]);
      }
      MAGISTER_UNROLL
      for (int part = 0; part < kValueParts; ++part) {
        const int row = tile * 16 + 2 * p, piece = part * 8 + g;
        const Words4 keys[4] = {load_16(values + staged(row, piece, kValuePitch)),
                                load_16(values + staged(row + 1, piece, kValuePitch)),
                                load_16(values + staged(row + 8, piece, kValuePitch)),
                                load_16(values + staged(row + 9, piece, kValuePitch))};
        std::uint32_t left[4][4];
        MAGISTER_UNROLL
        for (int i = 0; i < 16; ++i) {
          const std::uint32_t first = keys[i % 4 / 2 * 2].word[i / 4], second = keys[i % 4 / 2 * 2 + 1].word[i / 4];
          left[i / 4][i % 4] = i % 2 == 0 ? lower_halves(first, second) : upper_halves(first, second);
        }
        MAGISTER_UNROLL
        for (int i = 0; i < 8 * kTiles; ++i) {
          const int n = i / 4 % kTiles, j = i % 4;
          t.mma_bf16(sums.numbers[part][j][n], left[j], i < 4 * kTiles ? upper[n] : lower[n]);
        }
      }
    }
  }
};

}  // namespace magister::gpu
