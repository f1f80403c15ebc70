// Pages of codes (kv_code_kernels.h) for grouped attention: as grouped_attention_page.h, with half of the bytes in
// shared memory. Codes become bf16 on the way to the tensor cores, without rounding. The power of two of a key
// multiplies its scores, that of a value its shares before they are split.
// Legend: as in attention_kernels.h; g = lane / 4, p = lane % 4.
#pragma once

#include "model/gpu/e4m3.h"
#include "model/gpu/grouped_attention_shares.h"

namespace magister::gpu {

// Codes 0 and 2 (1 and 3) of a word, lowest byte first, as two bf16 numbers.
MAGISTER_DEVICE std::uint32_t even_e4m3(std::uint32_t word) {
  return multiply_pairs((word << 8 & 0x80008000u) | (word << 4 & 0x07f007f0u), 0x7b807b80u);  // 2^120 twice
}
MAGISTER_DEVICE std::uint32_t odd_e4m3(std::uint32_t word) {
  return multiply_pairs((word & 0x80008000u) | (word >> 4 & 0x07f007f0u), 0x7b807b80u);
}

// Bytes of a vector of codes in shared memory: 64, or whole groups of eight pieces of 16 bytes.
template <int kNumbers>
constexpr int kCodePitch = kNumbers <= 64 ? 64 : (kNumbers + 127) / 128 * 128;

// kE, kV: E and V, multiples of 16. kTiles: groups of eight query heads. The powers of a page follow its vectors, in
// shared memory as in a record.
template <int kE, int kV, int kTiles>
struct GroupedCodePage : GroupedShares<kV, kTiles> {
  using Shares = GroupedShares<kV, kTiles>;
  using Shares::kKeyTiles, Shares::kValueParts;
  using typename Shares::Page, typename Shares::PageSums, typename Shares::Scores;
  static constexpr int kKeyPitch = kCodePitch<kE>, kValuePitch = kCodePitch<kV>;
  static constexpr int kKeyBytes = kPageSlots * (kKeyPitch + 1), kCodeBytes = kPageSlots * (kValuePitch + 1);
  // A warp leaves its sums there, too (GroupedAttention): [head][V + 4], and two numbers of each head.
  static constexpr int kLeftBytes = 4 * 8 * kTiles * (kV + 6);
  static constexpr int kValueBytes = kCodeBytes > kLeftBytes ? kCodeBytes : kLeftBytes;
  static constexpr int kKeySteps = (kE + 63) / 64;

  // Offset of 16 bytes of a vector in shared memory, permuted as in grouped_attention_page.h: lanes that read at the
  // same time use different banks, two neighbouring vectors in score() and every second one in add_values().
  template <int kPitch>
  MAGISTER_DEVICE static int staged(int slot, int piece) {
    const int line = kPitch == 64 ? slot / 2 * 128 : slot * kPitch;
    return line + (piece ^ ((slot & 6) ^ ((slot & 1) * 4))) * 16;
  }

  // Queues the copies of a page as one group; codes of slots that the row does not see become zeros.
  template <int kNumbers, typename Thread>
  MAGISTER_DEVICE static void copy_rows(Thread& t, const Bf16* pages, const Page& page, unsigned char* to) {
    constexpr int kPieces = kNumbers / 16, kOfCodes = kPageSlots * kPieces, kAll = kOfCodes + kPageSlots / 16,
                  kPitch = kCodePitch<kNumbers>;
    if (page.is_seen()) {
      const auto* const record = reinterpret_cast<const unsigned char*>(pages) + page.row * (kNumbers + 1);
      MAGISTER_UNROLL
      for (int i = 0; i < (kAll + kWarp - 1) / kWarp; ++i) {
        const int index = i * kWarp + t.lane(), slot = index / kPieces;
        if (index < kOfCodes) {
          t.copy_16(to + staged<kPitch>(slot, index % kPieces), record + index * 16,
                    slot >= page.low && slot < page.high);
        } else if (index < kAll) {
          t.copy_16(to + kPageSlots * kPitch + (index - kOfCodes) * 16, record + index * 16, true);
        }
      }
    }
    t.end_copies();
  }

  // Pieces after E that score() reads; nothing else writes them.
  template <typename Thread>
  MAGISTER_DEVICE static void clear_ends_of_keys(Thread& t, unsigned char* keys) {
    constexpr int kPieces = kE / 16;
    if constexpr (kPieces < 4 * kKeySteps) {
      for (int slot = t.lane(); slot < kPageSlots; slot += kWarp) {
        for (int piece = kPieces; piece < 4 * kKeySteps; ++piece)
          *reinterpret_cast<Words4*>(keys + staged<kKeyPitch>(slot, piece)) = Words4{};
      }
    }
  }

  // As GroupedPage::score(), with inputs numbered so that a lane's 16 codes are its part of four products.
  template <typename Thread>
  MAGISTER_DEVICE static void score(Thread& t, const AttentionArguments<Bf16>& a, const Bf16* q, int heads,
                                    const unsigned char* keys, Scores& scores) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    scores = {};
    MAGISTER_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      const int piece = step * 4 + p, e = piece * 16 < kE ? piece * 16 : kE - 16;
      std::uint32_t right[kTiles][2][4];
      Words4 low[kKeyTiles], high[kKeyTiles];
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        const int head = i / 2 * 8 + g < heads ? i / 2 * 8 + g : heads - 1;
        CodeUnit<8>::arrange(load_16(q + head * kE + e + i % 2 * 8), right[i / 2][i % 2]);
      }
      MAGISTER_UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        low[tile] = load_16(keys + staged<kKeyPitch>(tile * 16 + g, piece));
        high[tile] = load_16(keys + staged<kKeyPitch>(tile * 16 + 8 + g, piece));
      }
      MAGISTER_UNROLL
      for (int word = 0; word < 4; ++word) {
        std::uint32_t left[kKeyTiles][4];
        MAGISTER_UNROLL
        for (int tile = 0; tile < kKeyTiles; ++tile) {
          const std::uint32_t first = low[tile].word[word], second = high[tile].word[word];
          left[tile][0] = even_e4m3(first);
          left[tile][1] = even_e4m3(second);
          left[tile][2] = odd_e4m3(first);
          left[tile][3] = odd_e4m3(second);
        }
        MAGISTER_UNROLL
        for (int i = 0; i < kTiles * kKeyTiles; ++i) {  // products of the same sums are far apart
          const int n = i / kKeyTiles, tile = i % kKeyTiles;
          const auto& pairs = right[n][word / 2];
          t.mma_bf16(scores.of[tile][n], left[tile], {pairs[word % 2 * 2], pairs[word % 2 * 2 + 1]});
        }
      }
    }
    scale(t, a.scale, keys + kPageSlots * kKeyPitch, scores);
    if (a.softcap > 0) Shares::cap(a.softcap, scores);
  }

  // Multiplies the scores of a key by its power of two, then by `factor`. Slots that the row does not see may get any
  // score.
  template <typename Thread>
  MAGISTER_DEVICE static void scale(Thread& t, float factor, const unsigned char* powers, Scores& scores) {
    MAGISTER_UNROLL
    for (int j = 0; j < 2 * kKeyTiles; ++j) {
      const float power = power_as_float(powers[j * 8 + t.lane() / 4]);
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        float& score = scores.of[j / 2][i / 2][j % 2 * 2 + i % 2];
        score = score * power * factor;
      }
    }
  }

  // As GroupedPage::add_values(). Bytes of two keys come to the places where the codes of a product's pair are the even
  // or the odd ones of a word.
  template <typename Thread>
  MAGISTER_DEVICE static void add_values(Thread& t, const Page& page, const unsigned char* values, const Scores& scores,
                                         PageSums& sums) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    MAGISTER_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      std::uint32_t upper[kTiles][2], lower[kTiles][2];
      MAGISTER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int slot = tile * 16 + half * 8 + g;
        const bool is_seen = slot >= page.low && slot < page.high;  // another slot's power may be that of infinity
        const float power = is_seen ? power_as_float(values[kPageSlots * kValuePitch + slot]) : 0.0f;
        MAGISTER_UNROLL
        for (int n = 0; n < kTiles; ++n) {
          const float* const two = &scores.of[tile][n][half * 2];
          Shares::split(t, {two[0] * power, two[1] * power}, upper[n][half], lower[n][half]);
        }
      }
      MAGISTER_UNROLL
      for (int part = 0; part < kValueParts; ++part) {
        Words2 keys[4];
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int slot = tile * 16 + i / 2 * 8 + 2 * p + i % 2;
          keys[i] = *reinterpret_cast<const Words2*>(values + staged<kValuePitch>(slot, part * 4 + g / 2) + g % 2 * 8);
        }
        std::uint32_t left[4][4];
        MAGISTER_UNROLL
        for (int i = 0; i < 8; ++i) {
          const int j = i / 2, two = i % 2 * 2;
          const std::uint32_t first = keys[two].word[j / 2], second = keys[two + 1].word[j / 2],
                              both = j % 2 == 0 ? lower_halves(first, second) : upper_halves(first, second);
          left[j][two] = even_e4m3(both);
          left[j][two + 1] = odd_e4m3(both);
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
