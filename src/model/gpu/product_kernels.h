// Products of few rows, out[M, N] = x[M, K] * weight[N, K]^T + bias, with weights of bf16, int8 or int4 that are read
// once. Reading them limits the speed of decoding: words go from global memory to registers and are widened there
// exactly, and the tensor cores multiply. Scales are applied only to the f32 sums of a group. Source: the PTX ISA's
// fragments of mma.m16n8k16.
// Legend: M rows, N outputs, K inputs, G groups of inputs that share a scale.
#pragma once

#include "model/gpu/product_step.h"

namespace magister::gpu {

// The end of a block whose warps have a chain of sums each: the chains are added in their order through shared memory,
// [warp][row][output]. A block with fewer warps than chains computes them in rounds, and keeps the sums so far behind.
template <int kTiles, int kStacks>
struct ChainEnds {
  static constexpr int kOutputs = 16 * kStacks;
  // Row pitch of partial sums: the lanes of a store use different banks.
  static constexpr int kPitch = kOutputs + 4;
  static constexpr int kWarpBytes = 4 * kTiles * 8 * kPitch, kRoundBytes = 4 * kTiles * 8 * kOutputs;
  const ProductArguments& a;

  template <typename Thread, typename Sums>
  MAGISTER_DEVICE void add(Thread& t, const Sums& sums, bool is_first, bool is_last) const {
    float* totals = reinterpret_cast<float*>(t.shared()) + t.num_warps() * (kWarpBytes / 4);
    if (!is_first) t.sync();  // the sums of the round before have been read
    leave(t, sums);
    for (int i = t.thread(); i < a.M * kOutputs; i += t.num_threads()) {
      const int m = i / kOutputs;
      const std::int64_t n = t.block_x() * kOutputs + i % kOutputs;
      if (n >= a.weight.N) continue;
      const float sum = total(t, is_first ? 0.0f : totals[i], m, i % kOutputs);
      is_last ? store_sum(a, m, n, sum) : void(totals[i] = sum);
    }
  }

  // Writes the warp's sums to shared memory, and waits for the other warps.
  template <typename Thread, typename Sums>
  MAGISTER_DEVICE void leave(Thread& t, const Sums& sums) const {
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
  }
  // `sum` and what the warps have left of a row and an output of the block.
  template <typename Thread>
  MAGISTER_DEVICE float total(Thread& t, float sum, int m, int output) const {
    const auto* const partial = reinterpret_cast<const float*>(t.shared());
    for (int warp = 0; warp < t.num_warps(); ++warp) sum += partial[(warp * kTiles * 8 + m) * kPitch + output];
    return sum;
  }
};

// A warp multiplies 16 * kStacks outputs with up to 8 * kTiles rows, step by step. All warps of a block share the
// outputs: each warp computes one chain of sums, and the warps' sums are added in their order. None of this depends on
// M or on other columns, so the bits of a row are its own.
//
// Bytes in flight on an H200 (132 multiprocessors at 4.3 TB/s and about 1 us need 33 KB each): kAhead steps of 1 KB per
// stack and warp, one of which is being multiplied, give 3 to 4 KB * 8 warps = 24 to 32 KB per block of 256 threads,
// and two or three blocks fit (product_cuda.cu has ptxas's figures).
template <int kBits, int kParts, CodeFormat::Offset kOffset, int kTiles, int kStacks, bool kAligned = true>
struct DecodeProduct {
  using Step = ProductStep<kBits, kParts, kOffset, kTiles, kStacks>;
  using Ends = ChainEnds<kTiles, kStacks>;
  static constexpr const char* kName = "decode_product";
  static constexpr int kMostWarps = 8, kMaxThreads = 32 * kMostWarps;
  static constexpr bool kWaits = true;
  static constexpr int kMinBlocks = kTiles == 1 ? 2 : 1;  // at most 128 registers; more sums would spill
  static constexpr int kOutputs = 16 * kStacks;
  // More steps if registers are left: a block with up to 16 rows has 24 to 32 KB in flight.
  static constexpr int kAhead = kTiles == 8 ? 1 : kStacks == 1 ? 4 : kTiles == 2 ? 3 : 2;
  // bf16 words are operands of the tensor cores without conversion, but in a register order of their own. With many
  // tiles, ptxas moves them there only once if nothing is loaded over them (counted: 314 instead of 400 instructions
  // per round).
  static constexpr bool kTakenOut = kBits == 16 && kTiles > 2;
  ProductArguments a;

  LaunchShape shape() const {
    const auto chains = static_cast<unsigned>(Step::num_chains(a.weight)),
               warps = chains < kMostWarps ? chains : kMostWarps;
    return {.blocks_x = static_cast<unsigned>((a.weight.N + kOutputs - 1) / kOutputs),
            .threads = warps * 32,
            .shared_bytes = std::size_t{warps} * Ends::kWarpBytes + (chains > warps ? Ends::kRoundBytes : 0)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int num_steps = Step::num_steps(a.weight), chains = Step::num_chains(a.weight);
    const Outputs outputs = my_outputs(t);
    for (int chain = t.warp(); chain < chains; chain += t.num_warps()) {
      typename Step::Sums sums = {};
      Step ahead[kAhead];
      MAGISTER_UNROLL
      for (int i = 0; i < kAhead; ++i) load(t, outputs, Step::step_of(chain, i, chains), ahead[i]);
      t.wait_for_earlier();  // only x comes from earlier kernels
      for (int index = 0; Step::step_of(chain, index, chains) < num_steps; index += kAhead) {
        MAGISTER_UNROLL
        for (int i = 0; i < kAhead; ++i) {
          const int now = Step::step_of(chain, index + i, chains);
          if (now >= num_steps) break;
          const int then = Step::step_of(chain, index + i + kAhead, chains);
          if constexpr (kTakenOut) {
            Step words = ahead[i];
            load(t, outputs, then, ahead[i]);
            multiply(t, now, words, sums);
          } else {  // the next words are loaded into the same registers
            multiply(t, now, ahead[i], sums);
            load(t, outputs, then, ahead[i]);
          }
        }
      }
      Ends{a}.add(t, sums, chain < t.num_warps(), chain + t.num_warps() >= chains);
    }
  }

 private:
  // This lane's rows of codes and of scales. Outputs beyond N are clamped to the last one, and their sums are not used.
  struct Outputs {
    const unsigned char* row[kStacks][2];
    int scales[kStacks][2];
  };
  template <typename Thread>
  MAGISTER_DEVICE Outputs my_outputs(Thread& t) const {
    Outputs out;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i) {
      const int n = Step::least(static_cast<int>(t.block_x()) * kOutputs + i * 8 + t.lane() / 4, a.weight.N - 1);
      out.row[i / 2][i % 2] = a.weight.rows + n * a.weight.row_bytes;
      out.scales[i / 2][i % 2] = n * a.weight.G;
    }
    return out;
  }

  // The only branch is at the end of the row.
  template <typename Thread>
  MAGISTER_DEVICE void load(Thread& t, const Outputs& outputs, int step, Step& out) const {
    const int first = step * Step::kInputs - Step::skipped(a.weight), k = first + t.lane() % 4 * (128 / kBits);
    if (first >= a.weight.K) return;
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      MAGISTER_UNROLL
      for (int h = 0; h < 2; ++h) out.words[s][h] = row_words(outputs.row[s][h], k);
    }
    out.load_scales(t, a.weight, outputs.scales, first);
  }

  // 16 bytes of a row, beginning with input k.
  MAGISTER_DEVICE Words4 row_words(const unsigned char* row, int k) const {
    if constexpr (kAligned) {
      return load_16_once(row + static_cast<std::int64_t>(Step::within_row(a.weight, k)) * kBits / 8);
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

  // Eight numbers of a row of x, beginning with input k; zeros outside the row. Rows beyond M are clamped to the last
  // one, and their sums are not used.
  MAGISTER_DEVICE Words4 x_words(int m, int k) const {
    Words4 words{};
    const Bf16* row = a.x_MK + Step::least(m, a.M - 1) * a.x_stride;
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

  template <typename Thread>
  MAGISTER_DEVICE void multiply(Thread& t, int now, Step& step, typename Step::Sums& sums) const {
    const int first = now * Step::kInputs - Step::skipped(a.weight), g = t.lane() / 4;
    step.multiply(
        t, a.weight, (a.M + 7) / 8,
        [&](int tile, int unit) { return x_words(tile * 8 + g, first + Step::unit_input(unit, t.lane() % 4)); }, sums);
  }
};

}  // namespace magister::gpu
