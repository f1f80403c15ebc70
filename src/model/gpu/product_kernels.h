// Products of few rows, out[M, N] = x[M, K] * weight[N, K]^T + bias, with weights of bf16, int8 or int4 that are read once.
// Decoding is bound by that reading: words go from global memory to registers, are widened there exactly, and the tensor
// cores multiply; scales touch the f32 sums of a group only. Source: the PTX ISA's fragments of mma.m16n8k16.
// Legend: M rows, N outputs, K inputs, G groups of inputs that share a scale.
#pragma once

#include "model/gpu/code_registers.h"

namespace magister::gpu {

// A row-major weight of N outputs: bf16 [N, K], int8 [N, K] (code - 128, a signed byte, whatever the offset) or int4 [N, K/2]
// (the even input in the lower nibble). scales and offsets: [N, G], null for bf16.
struct StoredWeight {
  const unsigned char* rows = nullptr;
  std::int64_t row_bytes = 0;
  const std::uint16_t* scales = nullptr;   // bf16, or f16 with half_scales
  const std::uint16_t* offsets = nullptr;  // f16 zeros (whole numbers up to 127 for int4) or minima; null for kMiddle
  int N = 0, K = 0, G = 0;
  int lead = 0;          // inputs of the first group that another shard holds
  int group_shift = 30;  // log2 of a group; 30: one scale an output
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  bool half_scales = false;
};

struct ProductArguments {
  StoredWeight weight;
  const Bf16* x_MK;
  std::int64_t x_stride;  // in numbers
  const float* bias_N;    // or nullptr
  void* out_MN;           // f32 or bf16
  std::int64_t out_stride;
  int M;  // 1 to 8 * kTiles
  bool float_out;
};

// A warp multiplies 16 * kStacks outputs with 8 * kTiles rows in steps of 64 bytes of every output: lane (g = lane / 4,
// q = lane % 4) loads 16 bytes of outputs g and g + 8, which are its part of the tensor cores' left operand when the inputs
// are numbered as they come; x's rows, the right operand, are loaded with the same numbering. All warps of a block share the
// outputs: warp w does steps w, w + warps, ..., so that a block reads 512 bytes of a row at a time, and the warps' sums are
// added in their order. Nothing of this depends on M or on the other columns: a row's bits are its own.
//
// kParts: groups in a step (int4 in groups of 32: 4, of 64: 2; int8 in groups of 32: 2; else 1). A product of the tensor
// cores must stay in one group, so with several the four lanes of an output exchange words first: 3 shuffles for 16 bytes.
//
// In flight on an H200 (132 SMs at 4.3 TB/s and about 1 us: 33 KB an SM): kAhead steps of 1 KB a stack and warp, one
// of which is being multiplied, so 3 to 4 KB * 8 warps = 24 to 32 KB a block of 256 threads, and two or three blocks fit (the figures
// of ptxas are in product_cuda.cu).
template <int kBits, int kParts, CodeFormat::Offset kOffset, int kTiles, int kStacks, bool kAligned = true>
struct DecodeProduct {
  static constexpr const char* kName = "decode_product";
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = kTiles == 1 ? 2 : 1;  // at most 128 registers, which more sums would spill
  static constexpr int kOutputs = 16 * kStacks;
  static constexpr int kStep = 512 / kBits;  // inputs a step
  static constexpr int kUnits = 16 / kBits;  // units of 8 inputs in a lane's 16 bytes
  static constexpr int kUnitsAPart = kUnits / kParts;
  // More where registers are left: 24 to 32 KB are in flight in a block with up to 16 rows.
  static constexpr int kAhead = kTiles == 8 ? 1 : kStacks == 1 ? 4 : kTiles == 2 ? 3 : 2;
  static constexpr int kPitch = kOutputs + 4;  // of partial sums in shared memory: no two lanes of a store in a bank
  static constexpr bool kMinimum = kOffset == CodeFormat::Offset::kMinimum;
  static constexpr bool kOffsets = kOffset != CodeFormat::Offset::kMiddle;
  // bf16 words are operands of the tensor cores as they are, in an order of registers of their own: for many tiles ptxas puts them
  // there once only when nothing is loaded over them (counted: 314 instructions a round instead of 400).
  static constexpr bool kTakenOut = kBits == 16 && kTiles > 2;
  using Unit = CodeUnit<kBits>;
  ProductArguments a;

  // Eight warps where each has two steps at least; K alone decides.
  LaunchShape shape() const {
    const unsigned warps = (a.weight.K + kStep - 1) / kStep >= 16 ? 8 : 4;
    return {.blocks_x = static_cast<unsigned>((a.weight.N + kOutputs - 1) / kOutputs),
            .threads = warps * 32,
            .shared_bytes = sizeof(float) * warps * kTiles * 8 * kPitch};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int skipped = a.weight.lead % kStep;  // steps begin where groups do
    const int num_steps = (skipped + a.weight.K + kStep - 1) / kStep, warps = t.num_warps();
    const Outputs outputs = my_outputs(t);
    float sums[kStacks][kTiles][4] = {};
    Step ahead[kAhead];
    MAGISTER_UNROLL
    for (int i = 0; i < kAhead; ++i) load(t, outputs, t.warp() + i * warps, skipped, ahead[i]);
    for (int step = t.warp(); step < num_steps; step += kAhead * warps) {
      MAGISTER_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int now = step + i * warps;
        if (now >= num_steps) break;
        if constexpr (kTakenOut) {
          Step words = ahead[i];
          load(t, outputs, now + kAhead * warps, skipped, ahead[i]);
          multiply(t, now * kStep - skipped, words, sums);
        } else {  // the next words come into the same registers
          multiply(t, now * kStep - skipped, ahead[i], sums);
          load(t, outputs, now + kAhead * warps, skipped, ahead[i]);
        }
      }
    }
    finish(t, sums);
  }

 private:
  // What a lane holds of a step: outputs g and g + 8 of every stack.
  struct Step {
    Words4 words[kStacks][2];
    // g's in the lower half, g + 8's in the upper one, of part q % kParts.
    std::uint32_t scales[kStacks], offsets[kStacks];
  };

  // The lane's rows of codes and of scales; outputs beyond N are the last one, and nobody takes their sums.
  struct Outputs {
    const unsigned char* row[kStacks][2];
    int scales[kStacks][2];
  };
  template <typename Thread>
  MAGISTER_DEVICE Outputs my_outputs(Thread& t) const {
    Outputs out;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i) {
      const int n = least(static_cast<int>(t.block_x()) * kOutputs + i * 8 + t.lane() / 4, a.weight.N - 1);
      out.row[i / 2][i % 2] = a.weight.rows + n * a.weight.row_bytes;
      out.scales[i / 2][i % 2] = n * a.weight.G;
    }
    return out;
  }

  // Nothing branches but the end of the row: inputs and groups beyond it are the last ones, whose products with x's zeros are 0.
  template <typename Thread>
  MAGISTER_DEVICE void load(Thread& t, const Outputs& outputs, int step, int skipped, Step& out) const {
    const StoredWeight& w = a.weight;
    const int q = t.lane() % 4, first = step * kStep - skipped, k = first + q * (128 / kBits);
    if (first >= w.K) return;
    const int group = least((first + w.lead + q % kParts * (kStep / kParts)) >> w.group_shift, w.G - 1);
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      MAGISTER_UNROLL
      for (int h = 0; h < 2; ++h) out.words[s][h] = row_words(outputs.row[s][h], k);
      if constexpr (kBits < 16) {
        const int low = outputs.scales[s][0] + group, high = outputs.scales[s][1] + group;
        out.scales[s] = lower_halves(w.scales[low], w.scales[high]);
        if constexpr (kOffsets) out.offsets[s] = lower_halves(w.offsets[low], w.offsets[high]);
      }
    }
  }
  MAGISTER_DEVICE static int least(int x, int y) { return x < y ? x : y; }

  // 16 bytes of a row from input k on.
  MAGISTER_DEVICE Words4 row_words(const unsigned char* row, int k) const {
    if constexpr (kAligned) {
      const int within = least(k, a.weight.K - 128 / kBits);
      return load_16_once(row + static_cast<std::int64_t>(within < 0 ? 0 : within) * kBits / 8);
    } else {
      Words4 words{};
      constexpr int kCodes = 32 / kBits;
      for (int i = 0; i < 4 * kCodes; ++i) {
        const int at = k + i;
        if (at < 0 || at >= a.weight.K) continue;
        std::uint32_t code;
        if constexpr (kBits == 16) {
          code = reinterpret_cast<const std::uint16_t*>(row)[at];
        } else if constexpr (kBits == 8) {
          code = row[at];
        } else {
          code = row[at / 2] >> (4 * (at % 2)) & 0xfu;
        }
        words.word[i / kCodes] |= code << (kBits * (i % kCodes));
      }
      return words;
    }
  }

  // Eight numbers of a row of x from input k on; zero where it has none. Rows beyond M are the last one, and nobody takes their sums.
  MAGISTER_DEVICE Words4 x_words(int m, int k) const {
    Words4 words{};
    const Bf16* row = a.x_MK + least(m, a.M - 1) * a.x_stride;
    if constexpr (kAligned) {
      if (k >= 0 && k < a.weight.K) words = load_16(row + k);
    } else {
      for (int i = 0; i < 8; ++i) {
        if (k + i >= 0 && k + i < a.weight.K)
          words.word[i / 2] |= static_cast<std::uint32_t>(row[k + i].bits) << (16 * (i % 2));
      }
    }
    return words;
  }

  MAGISTER_DEVICE static void swap_if(bool condition, std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t x = a;
    a = condition ? b : a;
    b = condition ? x : b;
  }

  // A lane's 16 bytes are of one group of several; afterwards its words [p * 4 / kParts, (p + 1) * 4 / kParts) are of part p.
  template <typename Thread>
  MAGISTER_DEVICE static void regroup(Thread& t, Words4& x) {
    const int q = t.lane() % 4;
    if constexpr (kParts == 4) {  // lane q's word i is sent to lane q ^ i, then part p stands in word q ^ p
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

  // The first input, counted from the step's, that lane q's unit u stands for after regroup().
  MAGISTER_DEVICE static int unit_input(int u, int q) {
    const int word = u * Unit::kWords, codes = 32 / kBits;
    if constexpr (kParts == 4) return (4 * word + (q ^ word)) * codes;
    if constexpr (kParts == 2) return (8 * (word / 2) + 4 * (q & 1) + 2 * ((q >> 1) ^ (word / 2)) + word % 2) * codes;
    return (4 * q + word) * codes;
  }

  // Numbers of a part for outputs g and g + 8: held by the lane of the same output that loaded them.
  template <typename Thread>
  MAGISTER_DEVICE static std::uint32_t of_part(Thread& t, std::uint32_t held, int part) {
    return kParts == 1 ? held : t.shuffle(held, t.lane() / 4 * 4 + part);
  }

  // What widen() subtracts, of an f16 zero where the weight has zeros.
  MAGISTER_DEVICE static std::uint32_t minus(std::uint32_t zero) {
    if constexpr (kBits == 16) return 0;
    if constexpr (kMinimum) return Unit::offset(0);
    if constexpr (!kOffsets) return Unit::offset(kBits == 4 ? 8.0f : 128.0f);
    return Unit::offset(half_as_float(static_cast<std::uint16_t>(zero)));
  }

  template <typename Thread>
  MAGISTER_DEVICE void multiply(Thread& t, int first, Step& step, float (&sums)[kStacks][kTiles][4]) const {
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      regroup(t, step.words[s][0]);
      regroup(t, step.words[s][1]);
    }
    MAGISTER_UNROLL
    for (int part = 0; part < kParts; ++part) {
      float group[kStacks][kTiles][4] = {}, x_sums[kMinimum ? kTiles : 1][4] = {};
      std::uint32_t scales[kStacks] = {}, offsets[kStacks] = {};
      MAGISTER_UNROLL
      for (int s = 0; s < kStacks && kBits < 16; ++s) {
        scales[s] = of_part(t, step.scales[s], part);
        if (kOffsets) offsets[s] = of_part(t, step.offsets[s], part);
      }
      MAGISTER_UNROLL
      for (int u = part * kUnitsAPart; u < (part + 1) * kUnitsAPart; ++u) {
        std::uint32_t pairs[kStacks][2][4];
        MAGISTER_UNROLL
        for (int s = 0; s < kStacks; ++s) {
          Unit::template widen<kOffset>(step.words[s][0].word + u * Unit::kWords, minus(offsets[s] & 0xffffu),
                                        pairs[s][0]);
          Unit::template widen<kOffset>(step.words[s][1].word + u * Unit::kWords, minus(offsets[s] >> 16), pairs[s][1]);
        }
        if constexpr (kBits == 16) {
          multiply_unit(t, first + unit_input(u, t.lane() % 4), pairs, sums, x_sums);
        } else {
          multiply_unit(t, first + unit_input(u, t.lane() % 4), pairs, group, x_sums);
        }
      }
      if constexpr (kBits < 16) add_group(group, x_sums, scales, offsets, sums);
    }
  }

  template <typename Thread, int kSums>
  MAGISTER_DEVICE void multiply_unit(Thread& t, int k, const std::uint32_t (&pairs)[kStacks][2][4],
                                     float (&sums)[kStacks][kTiles][4], float (&x_sums)[kSums][4]) const {
    const std::uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    MAGISTER_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (kTiles > 1 && tile * 8 >= a.M) break;
      std::uint32_t x[4];
      Unit::arrange(x_words(tile * 8 + t.lane() / 4, k), x);
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

  // A group's products with its codes, and with minima the sum of its x, which every output of the warp shares.
  template <int kSums>
  MAGISTER_DEVICE void add_group(const float (&group)[kStacks][kTiles][4], const float (&x_sums)[kSums][4],
                                 const std::uint32_t (&scales)[kStacks], const std::uint32_t (&offsets)[kStacks],
                                 float (&sums)[kStacks][kTiles][4]) const {
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      MAGISTER_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float scale = scale_as_float(static_cast<std::uint16_t>(scales[s] >> (16 * h)), a.weight.half_scales);
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

  // The warps' sums through shared memory, [warp][row][output], and out.
  template <typename Thread>
  MAGISTER_DEVICE void finish(Thread& t, const float (&sums)[kStacks][kTiles][4]) const {
    auto* partial = reinterpret_cast<float*>(t.shared());
    const int g = t.lane() / 4, q = t.lane() % 4;
    MAGISTER_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      MAGISTER_UNROLL
      for (int s = 0; s < kStacks; ++s) {
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int row = t.warp() * kTiles * 8 + tile * 8 + 2 * q + i % 2;
          partial[row * kPitch + s * 16 + i / 2 * 8 + g] = sums[s][tile][i];
        }
      }
    }
    t.sync();
    for (int i = t.thread(); i < a.M * kOutputs; i += t.num_threads()) {
      const int m = i / kOutputs;
      const std::int64_t n = t.block_x() * kOutputs + i % kOutputs;
      if (n >= a.weight.N) continue;
      float sum = 0;
      for (int warp = 0; warp < t.num_warps(); ++warp) sum += partial[(warp * kTiles * 8 + m) * kPitch + i % kOutputs];
      if (a.bias_N != nullptr) sum += a.bias_N[n];
      if (a.float_out) {
        static_cast<float*>(a.out_MN)[m * a.out_stride + n] = sum;
      } else {
        static_cast<Bf16*>(a.out_MN)[m * a.out_stride + n] = to_bf16(sum);
      }
    }
  }
};

}  // namespace magister::gpu
