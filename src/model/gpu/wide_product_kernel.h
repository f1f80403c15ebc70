// Products of more rows than DecodeProduct supports, up to a few hundred, with the same weights and the same bits per
// row. A block multiplies 128 outputs with 64 or 128 rows; weights and x are copied to shared memory some steps ahead.
// Blocks with the same outputs are neighbours, so a weight is read from memory once and then from the L2 cache. Source:
// the PTX ISA's cp.async and mma.m16n8k16.
// Legend: M rows, N outputs, K inputs.
#pragma once

#include "model/gpu/product_step.h"

namespace magister::gpu {

// The warps are 4 groups of 32 outputs times 2 groups of 8 * kTiles rows. Every warp computes all chains of its outputs
// one after the other, and adds each to the total in the order of DecodeProduct's warps.
//
// Calculated, not measured: bf16 at M = 256 and 128 rows per block moves 2 bytes of weights and 2 of x through the L2
// cache for each byte from memory (DecodeProduct with 64 rows: 1 and 2 for each, and it reads the weights four times
// from memory). A block has 24 to 32 KB of weights in flight, where 33 KB per multiprocessor cover the memory's
// latency.
template <int kBits, int kParts, CodeFormat::Offset kOffset, int kTiles>
struct WideProduct {
  static constexpr int kStacks = 2;
  using Step = ProductStep<kBits, kParts, kOffset, kTiles, kStacks>;
  static constexpr const char* kName = "wide_product";
  static constexpr int kMaxThreads = 256;
  static constexpr bool kWaits = true;
  static constexpr int kMinBlocks = kBits == 16 && kTiles == 4 ? 2 : 1;
  static constexpr int kOutputs = 4 * 16 * kStacks, kRows = 2 * 8 * kTiles;
  // Bytes and 16-byte chunks of a row of x in a step.
  static constexpr int kRowBytes = 2 * Step::kInputs, kChunks = kRowBytes / 16;
  static constexpr int kWeightBytes = 64 * kOutputs, kStageBytes = kWeightBytes + kRowBytes * kRows;
  static constexpr int kStages = kStageBytes > 16 << 10 ? 4 : 5;  // at most 96 KB: compute capability 8.6 has 99
  ProductArguments a;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((a.M + kRows - 1) / kRows),
            .blocks_y = static_cast<unsigned>((a.weight.N + kOutputs - 1) / kOutputs),
            .threads = kMaxThreads,
            .shared_bytes = static_cast<std::size_t>(kStages) * kStageBytes};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int num_steps = Step::num_steps(a.weight), chains = Step::num_chains(a.weight);
    const Outputs outputs = my_outputs(t);
    typename Step::Sums totals = {}, sums = {};
    Place weights, fetched, now;
    for (int i = 0; i < kStages - 1; ++i) fetch_weights(t, weights, i, chains, num_steps);
    Step step, next;
    load_scales(t, outputs, now, chains, next);
    t.wait_for_earlier();  // only x comes from earlier kernels
    for (int i = 0; i < kStages - 1; ++i) fetch_x(t, fetched, i, chains, num_steps);
    for (int i = 0; i < num_steps; ++i) {
      t.template wait_for_copies<kStages - 2>();
      t.sync();  // now the data of this step has arrived, and the next copies overwrite nothing that is still read
      fetch_weights(t, weights, (i + kStages - 1) % kStages, chains, num_steps);
      fetch_x(t, fetched, (i + kStages - 1) % kStages, chains, num_steps);
      multiply(t, i % kStages, next, step, sums);
      const int chain = now.chain;
      now.go_on(chains, num_steps);
      if (i + 1 < num_steps) load_scales(t, outputs, now, chains, next);
      if (now.chain != chain) add_chain(sums, totals);
    }
    finish(t, totals);
  }

 private:
  // Position in a walk through all steps, chain by chain.
  struct Place {
    int chain = 0, index = 0;
    MAGISTER_DEVICE int step(int chains) const { return Step::step_of(chain, index, chains); }
    MAGISTER_DEVICE bool is_there(int chains, int num_steps) const {
      return chain < chains && step(chains) < num_steps;
    }
    MAGISTER_DEVICE void go_on(int chains, int num_steps) {
      ++index;
      if (step(chains) < num_steps) return;
      ++chain;
      index = 0;
    }
  };
  // Index of the first scale of outputs g and g + 8 of the lane's stacks.
  struct Outputs {
    int scales[kStacks][2];
  };

  template <typename Thread>
  MAGISTER_DEVICE static int first_output(Thread& t) {
    return t.warp() % 4 * 16 * kStacks;
  }
  template <typename Thread>
  MAGISTER_DEVICE static int first_row(Thread& t) {
    return t.warp() / 4 * 8 * kTiles;
  }

  template <typename Thread>
  MAGISTER_DEVICE Outputs my_outputs(Thread& t) const {
    Outputs out;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i) {
      const int n = static_cast<int>(t.block_y()) * kOutputs + first_output(t) + i * 8 + t.lane() / 4;
      out.scales[i / 2][i % 2] = Step::least(n, a.weight.N - 1) * a.weight.G;
    }
    return out;
  }

  template <typename Thread>
  MAGISTER_DEVICE void load_scales(Thread& t, const Outputs& outputs, const Place& at, int chains, Step& out) const {
    out.load_scales(t, a.weight, outputs.scales, at.step(chains) * Step::kInputs - Step::skipped(a.weight));
  }

  // Address of 16 bytes of a row of x in shared memory. It is permuted so that eight lanes which read at the same time
  // use different banks. ProductStep::unit_input() decides which inputs they read.
  MAGISTER_DEVICE static int x_place(int row, int chunk) {
    constexpr int kOther = kBits == 16                                  ? 0
                           : kParts == 4 || (kBits == 8 && kParts == 2) ? 4
                           : kBits == 4 && kParts == 1                  ? 2
                                                                        : 1;
    const int fold = kBits == 4 ? chunk / 8 : 0;
    return row * kRowBytes + (chunk ^ fold ^ (row % 2 * kOther)) * 16;
  }

  // These start the copies of the step at this position (none after the last step) and advance it; fetch_x() closes the
  // group of copies. Outputs beyond N and rows beyond M are clamped to the last ones, and their sums are not used.
  template <typename Thread>
  MAGISTER_DEVICE void fetch_weights(Thread& t, Place& at, int stage, int chains, int num_steps) const {
    if (!at.is_there(chains, num_steps)) return;
    unsigned char* const to = t.shared() + stage * kStageBytes;
    const int first = at.step(chains) * Step::kInputs - Step::skipped(a.weight);
    MAGISTER_UNROLL
    for (int i = 0; i < kWeightBytes / 16 / kMaxThreads; ++i) {
      const int piece = i * kMaxThreads + t.thread();
      const int n = Step::least(static_cast<int>(t.block_y()) * kOutputs + piece / 4, a.weight.N - 1);
      const int k = Step::within_row(a.weight, first + piece % 4 * (128 / kBits));
      t.copy_16(to + piece * 16, a.weight.rows + n * a.weight.row_bytes + static_cast<std::int64_t>(k) * kBits / 8,
                true);
    }
    at.go_on(chains, num_steps);
  }
  template <typename Thread>
  MAGISTER_DEVICE void fetch_x(Thread& t, Place& at, int stage, int chains, int num_steps) const {
    if (at.is_there(chains, num_steps)) {
      unsigned char* const to = t.shared() + stage * kStageBytes + kWeightBytes;
      const int first = at.step(chains) * Step::kInputs - Step::skipped(a.weight);
      MAGISTER_UNROLL
      for (int i = 0; i < kRows * kChunks / kMaxThreads; ++i) {
        const int piece = i * kMaxThreads + t.thread(), row = piece / kChunks, chunk = piece % kChunks;
        const int m = Step::least(static_cast<int>(t.block_x()) * kRows + row, a.M - 1), k = first + chunk * 8;
        const bool there = k >= 0 && k < a.weight.K;
        t.copy_16(to + x_place(row, chunk), a.x_MK + m * a.x_stride + (there ? k : 0), there);
      }
      at.go_on(chains, num_steps);
    }
    t.end_copies();
  }

  template <typename Thread>
  MAGISTER_DEVICE void multiply(Thread& t, int stage, const Step& scales, Step& step, typename Step::Sums& sums) const {
    if (t.block_x() * kRows + first_row(t) >= a.M)
      return;  // for the whole warp; single tiles without rows are not worth branches
    const unsigned char* const weights = t.shared() + stage * kStageBytes;
    const int g = t.lane() / 4, q = t.lane() % 4, row = first_row(t) + g;
    MAGISTER_UNROLL
    for (int s = 0; s < kStacks; ++s) {
      MAGISTER_UNROLL
      for (int h = 0; h < 2; ++h)
        step.words[s][h] = load_16(weights + (first_output(t) + s * 16 + h * 8 + g) * 64 + q * 16);
      if constexpr (kBits < 16) {
        step.scales[s] = scales.scales[s];
        step.offsets[s] = scales.offsets[s];
      }
    }
    step.multiply(
        t, a.weight, kTiles,
        [&](int tile, int unit) {
          const int input = Step::unit_input(unit, q);
          return load_16(weights + kWeightBytes + x_place(row + tile * 8, input / 8));
        },
        sums);
  }

  MAGISTER_DEVICE static void add_chain(typename Step::Sums& sums, typename Step::Sums& totals) {
    MAGISTER_UNROLL
    for (int i = 0; i < kStacks * kTiles * 4; ++i) {
      float& sum = sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
      totals[i / (kTiles * 4)][i / 4 % kTiles][i % 4] += sum;
      sum = 0;
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void finish(Thread& t, const typename Step::Sums& totals) const {
    const int g = t.lane() / 4, q = t.lane() % 4;
    MAGISTER_UNROLL
    for (int i = 0; i < kStacks * kTiles * 4; ++i) {
      const int s = i / (kTiles * 4), tile = i / 4 % kTiles, of_four = i % 4;
      const int m = static_cast<int>(t.block_x()) * kRows + first_row(t) + tile * 8 + 2 * q + of_four % 2;
      const std::int64_t n = t.block_y() * kOutputs + first_output(t) + s * 16 + of_four / 2 * 8 + g;
      if (m < a.M && n < a.weight.N) store_sum(a, m, n, totals[s][tile][of_four]);
    }
  }
};

}  // namespace magister::gpu
