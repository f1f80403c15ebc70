// The common part of the products of few and of many rows: the stored weight, and the work of a warp on one step of it,
// including the tensor cores' products and the scales. So a row has the same bits in both. Source: the PTX ISA's
// fragments of mma.m16n8k16.
// Legend: M rows, N outputs, K inputs, G groups of inputs that share a scale.
#pragma once

#include "model/gpu/code_registers.h"

namespace magister::gpu {

inline constexpr int kMultiprocessors = 132;  // of an H200

// A row-major weight of N outputs: bf16 [N, K], int8 [N, K] (code - 128, a signed byte, whatever the offset), e4m3
// [N, K], or int4 or e2m1 [N, K/2] (the even input in the lower nibble). scales and offsets: [N, G], null for bf16 and
// e4m3, whose scales are those of outputs (ProductArguments).
struct StoredWeight {
  const unsigned char* rows = nullptr;
  std::int64_t row_bytes = 0;
  const std::uint16_t* scales = nullptr;  // bf16, or f16 with half_scales
  const std::uint16_t* offsets =
      nullptr;  // f16 zero points (integers up to 127 for int4) or minima; null for kMiddle and kFloatCodes
  int N = 0, K = 0, G = 0;
  int lead = 0;          // inputs of the first group that another shard holds
  int group_shift = 30;  // log2 of the group size; 30: one scale per output
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  bool half_scales = false;
};

// The words that the next product of the pass reads first: `bytes` from the beginning of each of `count` rows of its
// weight, half of them from row `half_begin` on. A product may ask for them to be in the L2 cache when its own words
// are under way.
struct NextWeight {
  const unsigned char* rows = nullptr;
  std::int64_t row_bytes = 0;
  int count = 0, half_begin = 0, bytes = 0;

  MAGISTER_DEVICE const unsigned char* row(int i) const {
    return rows + (i < count / 2 ? i : half_begin + i - count / 2) * row_bytes;
  }
};

struct ProductArguments {
  StoredWeight weight;
  const Bf16* x_MK;
  std::int64_t x_stride;  // in numbers
  const float* bias_N;    // or nullptr
  void* out_MN;           // f32 or bf16
  std::int64_t out_stride;
  int M;
  bool float_out;
  const float* output_scales_N = nullptr;  // factors of the sums, before the bias; or nullptr
};

// From the first head to the next one: bytes of the weight, numbers of x, bytes of the result.
struct HeadStrides {
  std::int64_t weight_bytes, x, out_bytes;
  int heads;
};

// A step is 64 bytes of every output, of which a warp takes 16 * kStacks outputs. Lane (g = lane / 4, q = lane % 4)
// holds 16 bytes of outputs g and g + 8. These are its part of the tensor cores' left operand if inputs are numbered in
// the order of the bytes; x's rows, the right operand, are read with the same numbering. Steps form chains of sums:
// chain c of 4, 8 or 16 takes steps 2c and 2c + 1, then those 2 * chains further on, so that it reads whole lines of
// 128 bytes of a row. The chains' sums are added in their order. Only K and N decide this order.
//
// kParts: groups in a step (int4 in groups of 32: 4, of 64: 2; int8 in groups of 32: 2; else 1). A product of the
// tensor cores must stay in one group. So with several parts, the four lanes of an output first exchange words: 3
// shuffles for 16 bytes.
template <int kBits, int kParts, CodeFormat::Offset kOffset, int kTiles, int kStacks>
struct ProductStep {
  static constexpr int kInputs = 512 / kBits;  // inputs of a step
  static constexpr int kUnits = 16 / kBits;    // units of 8 inputs in a lane's 16 bytes
  static constexpr int kUnitsAPart = kUnits / kParts;
  static constexpr bool kMinimum = kOffset == CodeFormat::Offset::kMinimum;
  static constexpr bool kOffsets = kOffset == CodeFormat::Offset::kZero || kMinimum;
  static constexpr bool kGroups = kBits == 4 || (kBits == 8 && kOffset != kFloatCodes);  // have scales
  using Unit = CodeUnit<kBits>;
  using Sums = float[kStacks][kTiles][4];

  // This lane's words: outputs g and g + 8 of every stack.
  Words4 words[kStacks][2];
  // The lower half is for g, the upper one for g + 8; of part q % kParts.
  std::uint32_t scales[kStacks], offsets[kStacks];

  // Eight chains if each then has at least two steps, else four. Sixteen, so that K is divided over twice as many
  // warps, if each then has at least four steps and the outputs are too few to fill the GPU with eight: at most two
  // blocks of 16 outputs for each multiprocessor of an H200.
  static constexpr int kMostChains = 16, kFewOutputs = 2 * kMultiprocessors * 16;
  MAGISTER_DEVICE static int num_chains(const StoredWeight& w) {
    const int steps = (w.K + kInputs - 1) / kInputs;
    return steps >= 4 * kMostChains && w.N <= kFewOutputs ? kMostChains : steps >= 16 ? 8 : 4;
  }
  // Inputs of the first step before input 0: steps begin where groups begin.
  MAGISTER_DEVICE static int skipped(const StoredWeight& w) { return w.lead % kInputs; }
  MAGISTER_DEVICE static int num_steps(const StoredWeight& w) { return (skipped(w) + w.K + kInputs - 1) / kInputs; }
  MAGISTER_DEVICE static int step_of(int chain, int index, int chains) {
    return 2 * (chain + chains * (index / 2)) + index % 2;
  }

  MAGISTER_DEVICE static int least(int x, int y) { return x < y ? x : y; }
  // The first input of 16 aligned bytes, clamped to the row. Inputs beyond the end of the row are replaced by the last
  // ones, whose products with x's zeros are 0.
  MAGISTER_DEVICE static int within_row(const StoredWeight& w, int k) {
    const int within = least(k, w.K - 128 / kBits);
    return within < 0 ? 0 : within;
  }

  // The first input, counted from the step's, of unit u in lane q after regroup().
  MAGISTER_DEVICE static int unit_input(int u, int q) {
    const int word = u * Unit::kWords, codes = 32 / kBits;
    if constexpr (kParts == 4) return (4 * word + (q ^ word)) * codes;
    if constexpr (kParts == 2) return (8 * (word / 2) + 4 * (q & 1) + 2 * ((q >> 1) ^ (word / 2)) + word % 2) * codes;
    return (4 * q + word) * codes;
  }

  // Loads the scales of the step that begins with input `first`. rows[s][h]: index of an output's first scale.
  template <typename Thread>
  MAGISTER_DEVICE void load_scales(Thread& t, const StoredWeight& w, const int (&rows)[kStacks][2], int first) {
    if constexpr (kGroups) {
      const int part = t.lane() % 4 % kParts * (kInputs / kParts);
      const int group = least((first + w.lead + part) >> w.group_shift, w.G - 1);
      MAGISTER_UNROLL
      for (int s = 0; s < kStacks; ++s) {
        const int low = rows[s][0] + group, high = rows[s][1] + group;
        scales[s] = lower_halves(w.scales[low], w.scales[high]);
        if constexpr (kOffsets) offsets[s] = lower_halves(w.offsets[low], w.offsets[high]);
      }
    }
  }

  // Adds the step's products to sums. x(tile, unit) returns eight numbers of the lane's row g in a tile of 8 rows,
  // beginning with unit_input(unit, lane % 4). Tiles from `tiles` on are skipped; `tiles` must be the same in the whole
  // warp.
  template <typename Thread, typename X>
  MAGISTER_DEVICE void multiply(Thread& t, const StoredWeight& w, int tiles, const X& x, Sums& sums) {
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      regroup(t, words[s][0]);
      regroup(t, words[s][1]);
    }
    MAGISTER_UNROLL
    for (int part = 0; part < kParts; ++part) {
      Sums group = {};
      float x_sums[kMinimum ? kTiles : 1][4] = {};
      std::uint32_t part_scales[kStacks] = {}, part_offsets[kStacks] = {};
      MAGISTER_UNROLL
      for (int s = 0; s < kStacks && kGroups; ++s) {
        part_scales[s] = of_part(t, scales[s], part);
        if (kOffsets) part_offsets[s] = of_part(t, offsets[s], part);
      }
      MAGISTER_UNROLL
      for (int u = part * kUnitsAPart; u < (part + 1) * kUnitsAPart; ++u) {
        std::uint32_t pairs[kStacks][2][4];
        MAGISTER_UNROLL
        for (int s = 0; s < kStacks; ++s) {
          Unit::template widen<kOffset>(words[s][0].word + u * Unit::kWords, minus(part_offsets[s] & 0xffffu),
                                        pairs[s][0]);
          Unit::template widen<kOffset>(words[s][1].word + u * Unit::kWords, minus(part_offsets[s] >> 16), pairs[s][1]);
        }
        if constexpr (!kGroups) {
          multiply_unit(t, u, pairs, tiles, x, sums, x_sums);
        } else {
          multiply_unit(t, u, pairs, tiles, x, group, x_sums);
        }
      }
      if constexpr (kGroups) add_group(w.half_scales, group, x_sums, part_scales, part_offsets, sums);
    }
  }

 private:
  MAGISTER_DEVICE static void swap_if(bool condition, std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t x = a;
    a = condition ? b : a;
    b = condition ? x : b;
  }

  // Before: a lane's 16 bytes belong to one of several groups. After: its words [p * 4 / kParts, (p + 1) * 4 / kParts)
  // belong to part p.
  template <typename Thread>
  MAGISTER_DEVICE static void regroup(Thread& t, Words4& x) {
    const int q = t.lane() % 4;
    if constexpr (kParts == 4) {  // word i of lane q is sent to lane q ^ i; part p is then in word q ^ p
      x.word[1] = t.shuffle_xor(x.word[1], 1);
      x.word[2] = t.shuffle_xor(x.word[2], 2);
      x.word[3] = t.shuffle_xor(x.word[3], 3);
      swap_if(q & 1, x.word[0], x.word[1]);
      swap_if(q & 1, x.word[2], x.word[3]);
    } else if constexpr (kParts == 2) {
      x.word[2] = t.shuffle_xor(x.word[2], 2);
      x.word[3] = t.shuffle_xor(x.word[3], 2);
    }
    if constexpr (kParts > 1) {
      swap_if(q & 2, x.word[0], x.word[2]);
      swap_if(q & 2, x.word[1], x.word[3]);
    }
  }

  // Scales or offsets of a part for outputs g and g + 8, from the lane of the same output that loaded them.
  template <typename Thread>
  MAGISTER_DEVICE static std::uint32_t of_part(Thread& t, std::uint32_t held, int part) {
    return kParts == 1 ? held : t.shuffle(held, t.lane() / 4 * 4 + part);
  }

  // The number that widen() subtracts; if the weight has zero points, from an f16 zero point.
  MAGISTER_DEVICE static std::uint32_t minus(std::uint32_t zero) {
    if constexpr (kBits == 16 || kOffset == kFloatCodes) return 0;
    if constexpr (kMinimum) return Unit::offset(0);
    if constexpr (!kOffsets) return Unit::offset(kBits == 4 ? 8.0f : 128.0f);
    return Unit::offset(half_as_float(static_cast<std::uint16_t>(zero)));
  }

  template <typename Thread, typename X, int kSums>
  MAGISTER_DEVICE static void multiply_unit(Thread& t, int unit, const std::uint32_t (&pairs)[kStacks][2][4], int tiles,
                                            const X& x_of, Sums& sums, float (&x_sums)[kSums][4]) {
    const std::uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    MAGISTER_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (kTiles > 1 && tile >= tiles) break;
      std::uint32_t x[4];
      Unit::arrange(x_of(tile, unit), x);
      MAGISTER_UNROLL
      for (int pair = 0; pair < 4; pair += 2) {
        const std::uint32_t right[2] = {x[pair], x[pair + 1]};
        MAGISTER_UNROLL
        for (int s = 0; s < kStacks; ++s) {
          const std::uint32_t left[4] = {pairs[s][0][pair], pairs[s][1][pair], pairs[s][0][pair + 1],
                                         pairs[s][1][pair + 1]};
          t.mma_bf16(sums[s][tile], left, right);
        }
        if constexpr (kMinimum) t.mma_bf16(x_sums[tile], ones, right);
      }
    }
  }

  // Adds a group's products with its codes, and with minima also the sum of its x, which all outputs of the warp share.
  template <int kSums>
  MAGISTER_DEVICE static void add_group(bool half_scales, const Sums& group, const float (&x_sums)[kSums][4],
                                        const std::uint32_t (&scales)[kStacks], const std::uint32_t (&offsets)[kStacks],
                                        Sums& sums) {
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      MAGISTER_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float scale = scale_as_float(static_cast<std::uint16_t>(scales[s] >> (16 * h)), half_scales);
        const float minimum = kMinimum ? half_as_float(static_cast<std::uint16_t>(offsets[s] >> (16 * h))) : 0.0f;
        MAGISTER_UNROLL
        for (int i = 0; i < 2 * kTiles; ++i) {
          float& sum = sums[s][i / 2][2 * h + i % 2];
          sum = fmaf(scale, group[s][i / 2][2 * h + i % 2], sum);
          if constexpr (kMinimum) sum = fmaf(minimum, x_sums[i / 2][2 * h + i % 2], sum);
        }
      }
    }
  }
};

// The sum with its output's scale and bias.
MAGISTER_DEVICE float finished_sum(const ProductArguments& a, std::int64_t n, float sum) {
  if (a.output_scales_N != nullptr) sum *= a.output_scales_N[n];
  if (a.bias_N != nullptr) sum += a.bias_N[n];
  return sum;
}
// Adds the bias and stores a sum in the output's dtype.
MAGISTER_DEVICE void store_sum(const ProductArguments& a, int m, std::int64_t n, float sum) {
  sum = finished_sum(a, n, sum);
  if (a.float_out) {
    static_cast<float*>(a.out_MN)[m * a.out_stride + n] = sum;
  } else {
    static_cast<Bf16*>(a.out_MN)[m * a.out_stride + n] = to_bf16(sum);
  }
}

}  // namespace magister::gpu
