// The shares of a page's keys in grouped attention, whatever the pages hold: scores in the places of the tensor cores'
// products, their exponentials, and shares split into two bf16 numbers, which keep 16 bits of them.
// Source: the PTX ISA's fragments of mma.m16n8k16. Legend: as in attention_kernels.h; g = lane / 4, p = lane % 4.
#pragma once

#include "model/gpu/attention_arguments.h"
#include "model/gpu/code_registers.h"

namespace magister::gpu {

// kV: V, a multiple of 16. kTiles: groups of eight query heads.
template <int kV, int kTiles>
struct GroupedShares {
  static constexpr int kKeyTiles = kPageSlots / 16, kValueParts = (kV + 63) / 64;

  // Slots [low, high) of a page that a row sees, and its first row among keys and values.
  struct Page {
    int low = 0, high = 0;
    std::int64_t row = 0;
    MAGISTER_DEVICE bool is_seen() const { return low < high; }
  };
  // Keys g and g + 8 of a tile for query heads 2p and 2p + 1: [key tile][head tile][2 * half + head].
  struct Scores {
    float of[kKeyTiles][kTiles][4];
  };
  // Sums over the keys of a warp for heads 2p and 2p + 1 of a tile.
  struct PageSums {
    float best[kTiles][2], total[kTiles][2], numbers[kValueParts][4][kTiles][4] = {};
    MAGISTER_DEVICE PageSums() {
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        best[i / 2][i % 2] = -INFINITY;
        total[i / 2][i % 2] = 0;
      }
    }
  };

  // tanh(x) = 1 - 2 / (exp(2x) + 1), with an absolute error of about 1e-7.
  MAGISTER_DEVICE static void cap(float softcap, Scores& scores) {
    MAGISTER_UNROLL
    for (int i = 0; i < kKeyTiles * kTiles * 4; ++i) {
      float& score = scores.of[i / (4 * kTiles)][i / 4 % kTiles][i % 4];
      score = softcap * (1 - divide_roughly(2.0f, expf(2 * divide_roughly(score, softcap)) + 1));
    }
  }

  // Replaces scores by exp(score - maximum of the warp's keys so far), and zeros where the row sees no key.
  // kIsLater: the sums may have keys of an earlier page.
  template <bool kIsLater, typename Thread>
  MAGISTER_DEVICE static void exponentials(Thread& t, const Page& page, Scores& scores, PageSums& sums) {
    const int g = t.lane() / 4;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int n = i / 2, e = i % 2;
      float most = sums.best[n][e];
      MAGISTER_UNROLL
      for (int j = 0; j < 2 * kKeyTiles; ++j) {
        const int key = j * 8 + g;
        float& score = scores.of[j / 2][n][j % 2 * 2 + e];
        if (key < page.low || key >= page.high) score = -INFINITY;
        most = fmaxf(most, score);
      }
      MAGISTER_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) most = fmaxf(most, t.shuffle_xor(most, mask));
      float added = 0;
      MAGISTER_UNROLL
      for (int j = 0; j < 2 * kKeyTiles; ++j) {
        float& score = scores.of[j / 2][n][j % 2 * 2 + e];
        score = expf(score - most);
        added += score;
      }
      MAGISTER_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) added += t.shuffle_xor(added, mask);
      if constexpr (kIsLater) {
        const float factor = expf(sums.best[n][e] - most);
        added = fmaf(sums.total[n][e], factor, added);
        MAGISTER_UNROLL
        for (int j = 0; j < kValueParts * 8; ++j) sums.numbers[j / 8][j / 2 % 4][n][j % 2 * 2 + e] *= factor;
      }
      sums.best[n][e] = most;
      sums.total[n][e] = added;
    }
  }

  // From the lane that has heads (2p, 2p + 1) of key g to the lane that needs keys (2p, 2p + 1) of head g.
  template <typename Thread>
  MAGISTER_DEVICE static std::uint32_t transposed(Thread& t, std::uint32_t heads_of_key) {
    const int g = t.lane() / 4, p = t.lane() % 4, from = p * 8 + g / 2;
    const std::uint32_t first = t.shuffle(heads_of_key, from), second = t.shuffle(heads_of_key, from + 4);
    return g % 2 == 0 ? lower_halves(first, second) : upper_halves(first, second);
  }

  // The shares of a key for two heads as the right side of two products: the upper and the lower bf16.
  template <typename Thread>
  MAGISTER_DEVICE static void split(Thread& t, const float (&of_key)[2], std::uint32_t& upper, std::uint32_t& lower) {
    const std::uint32_t shares = pack_bf16(of_key[0], of_key[1]);
    upper = transposed(t, shares);
    lower = transposed(
        t, pack_bf16(of_key[0] - bits_as_float(shares << 16), of_key[1] - bits_as_float(shares & 0xffff0000u)));
  }
};

}  // namespace magister::gpu
