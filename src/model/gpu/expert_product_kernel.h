// The products of all experts of a layer with many rows each (passes of prompts) in one launch, for bf16 weights, or of
// some experts whose codes have been converted to bf16. A
// block multiplies up to 128 rows of one expert by 256 of its outputs; x and the weights are copied to shared memory
// some steps ahead. A row's sum is one chain over K in the order of the steps, so its bits depend neither on the
// other rows of its expert nor on their number.
// Source: the PTX ISA's cp.async and mma.m16n8k16. Legend: N sorted routes, M outputs, K inputs, X experts, I items,
// R routes a token.
#pragma once

#include "magister/device/numbers_at_once.h"
#include "model/gpu/grouped_product_kernel.h"

namespace magister::gpu {

// The warps are 2 groups of 64 rows times 4 groups of 64 outputs, and a warp without rows or outputs only copies. Rows
// are the tensor cores' left side. As in ProductStep, inputs are numbered so that a lane's 16 bytes are its part of two
// products. Outputs are numbered so that a lane has sixteen neighbours: column c of tile j is output
// 16 (c / 2) + 2 j + c % 2 of the warp's.
//
// Calculated for an H200, not measured: a step of 32 inputs is 512 products a block, about 810 cycles at 0.63 of the
// peak, which mma.sync reaches there; its 64 KB of fragments and 24 KB of copies take 700 cycles of shared memory. 85
// operations for each byte from the L2 cache ask for 5.6 TB/s at 480 TFLOP/s; blocks of 128 outputs would ask for 7.5.
// Weights of experts [begin, end), one after the other.
struct ExpertSlice {
  const unsigned char* weights = nullptr;  // nullptr: every expert's weights are at its own place
  int begin = 0, end = 0;
};

struct ExpertProduct {
  static constexpr const char* kName = "expert_product";
  static constexpr int kMaxThreads = 256;
  static constexpr int kRows = 128, kOutputs = 256, kInputs = 32;  // of a block, and of a step
  static constexpr int kRowBytes = 2 * kInputs, kXBytes = kRows * kRowBytes,
                       kStageBytes = kXBytes + kOutputs * kRowBytes;
  static constexpr int kStages = 4;  // 96 KB: compute capability 8.6 has 99
  static constexpr int kLanesARow = kRowBytes / 16, kRowsAtOnce = kMaxThreads / kLanesARow;
  static constexpr int kXCopies = kRows / kRowsAtOnce, kWeightCopies = kOutputs / kRowsAtOnce;
  static constexpr int kRowTiles = 4, kOutputTiles = 8, kOfWarp = 64;
  const Bf16* x_TK;
  std::int64_t x_stride;        // in numbers
  const std::int32_t* route_N;  // row n of x is the token of route n; nullptr: row n is row n
  int R;
  const ExpertPlace* places_X;
  const ExpertRows* items_I;  // of at most kRows rows
  int I;
  std::int64_t weight_bytes;  // of a row
  int M, K;                   // multiples of 8, as x_stride; all rows begin at multiples of 16 bytes
  void* out_NM;               // f32 or bf16, contiguous
  bool float_out;
  ExpertSlice slice{};  // blocks of other experts leave

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((M + kOutputs - 1) / kOutputs),
            .blocks_y = static_cast<unsigned>(I),
            .threads = kMaxThreads,
            .shared_bytes = static_cast<std::size_t>(kStages) * kStageBytes};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertRows item = items_I[t.block_y()];
    const bool has_slice = slice.weights != nullptr;
    if (item.rows == 0 || (has_slice && (item.expert < slice.begin || item.expert >= slice.end)))
      return;  // all threads
    ExpertPlace place = places_X[item.expert];
    if (has_slice) place.rows = slice.weights + static_cast<std::int64_t>(item.expert - slice.begin) * M * weight_bytes;
    const Copies copies = copies_of(t, item, place);
    const int steps = (K + kInputs - 1) / kInputs;
    for (int step = 0; step < kStages - 1; ++step) fetch(t, copies, step);
    const int first_row = t.warp() / 4 * kOfWarp, first_output = t.warp() % 4 * kOfWarp;
    const bool has_work = first_row < item.rows && t.block_x() * kOutputs + first_output < M;
    Sums sums = {};
    for (int step = 0; step < steps; ++step) {
      t.template wait_for_copies<kStages - 2>();
      t.sync();  // now the data of this step has arrived, and the next copies overwrite nothing that is still read
      fetch(t, copies, step + kStages - 1);
      if (has_work) multiply(t, t.shared() + step % kStages * kStageBytes, first_row, first_output, sums);
    }
    if (has_work)
      store(t, item, place.bias_N, first_row, static_cast<int>(t.block_x()) * kOutputs + first_output, sums);
  }

 private:
  using Sums = float[kRowTiles][kOutputTiles][4];

  // The 16 bytes of each step that a thread copies of some rows of x and of the weights; nullptr: there is no such row,
  // and nothing reads its place but sums that are not stored.
  struct Copies {
    const Bf16* x[kXCopies];
    const unsigned char* weights;
    int outputs;  // of the copied rows of weights
  };

  template <typename Thread>
  MAGISTER_DEVICE Copies copies_of(Thread& t, const ExpertRows& item, const ExpertPlace& place) const {
    const int row = t.thread() / kLanesARow, input = t.thread() % kLanesARow * 8,
              output = static_cast<int>(t.block_x()) * kOutputs + row;
    Copies copies;
    MAGISTER_UNROLL
    for (int i = 0; i < kXCopies; ++i) {
      const int of_item = row + i * kRowsAtOnce, n = item.first + of_item;
      if (of_item < item.rows) {
        copies.x[i] = x_TK + (route_N != nullptr ? route_N[n] / R : n) * x_stride + input;
      } else {
        copies.x[i] = nullptr;
      }
    }
    copies.weights = place.rows + output * weight_bytes + input * 2;
    const int left = M - output;
    copies.outputs = left <= 0 ? 0 : (left + kRowsAtOnce - 1) / kRowsAtOnce;
    return copies;
  }

  // Starts the copies of a step, as one group; inputs beyond K are zeros. After the last step the group is empty.
  template <typename Thread>
  MAGISTER_DEVICE void fetch(Thread& t, const Copies& copies, int step) const {
    const int first = step * kInputs;
    if (first < K) {
      unsigned char* const to = t.shared() + step % kStages * kStageBytes + t.thread() * 16;
      const bool there = first + t.thread() % kLanesARow * 8 < K;
      const int input = there ? first : 0;
      MAGISTER_UNROLL
      for (int i = 0; i < kXCopies; ++i) {
        if (copies.x[i] != nullptr) t.copy_16(to + i * kRowsAtOnce * kRowBytes, copies.x[i] + input, there);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kWeightCopies; ++i) {
        if (i < copies.outputs)
          t.copy_16(to + kXBytes + i * kRowsAtOnce * kRowBytes,
                    copies.weights + i * kRowsAtOnce * weight_bytes + input * 2, there);
      }
    }
    t.end_copies();
  }

  // Eight lanes that read at the same time read 128 neighbouring bytes, so they use different banks.
  template <typename Thread>
  MAGISTER_DEVICE static void multiply(Thread& t, const unsigned char* stage, int first_row, int first_output,
                                       Sums& sums) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    const unsigned char* const x = stage + (first_row + g) * kRowBytes + p * 16;
    const unsigned char* const weights =
        stage + kXBytes + (first_output + g / 2 * 2 * kOutputTiles + g % 2) * kRowBytes + p * 16;
    Words4 low[kRowTiles], high[kRowTiles];
    MAGISTER_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      low[m] = load_16(x + m * 16 * kRowBytes);
      high[m] = load_16(x + (m * 16 + 8) * kRowBytes);
    }
    MAGISTER_UNROLL
    for (int n = 0; n < kOutputTiles; ++n) {
      const Words4 right = load_16(weights + 2 * n * kRowBytes);
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int m = i % kRowTiles, two = i / kRowTiles * 2;
        const std::uint32_t left[4] = {low[m].word[two], high[m].word[two], low[m].word[two + 1],
                                       high[m].word[two + 1]};
        const std::uint32_t of_outputs[2] = {right.word[two], right.word[two + 1]};
        t.mma_bf16(sums[m][n], left, of_outputs);
      }
    }
  }

  // Output columns [first, first + 64) of the warp's rows. Eight neighbours at a time are stored, or none.
  template <typename Thread>
  MAGISTER_DEVICE void store(Thread& t, const ExpertRows& item, const float* bias_M, int first_row, int first,
                             const Sums& sums) const {
    const int g = t.lane() / 4, m_of_lane = first + t.lane() % 4 * 2 * kOutputTiles;
    MAGISTER_UNROLL
    for (int eight = 0; eight < 2; ++eight) {
      const int output = m_of_lane + eight * 8;
      if (output >= M) continue;
      float bias[8] = {};
      if (bias_M != nullptr) {
        MAGISTER_UNROLL
        for (int i = 0; i < 8; ++i) bias[i] = bias_M[output + i];
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int row = first_row + i * 8 + g;
        if (row >= item.rows) continue;
        float values[8];
        MAGISTER_UNROLL
        for (int j = 0; j < 8; ++j) values[j] = sums[i / 2][eight * 4 + j / 2][i % 2 * 2 + j % 2] + bias[j];
        const std::int64_t at = static_cast<std::int64_t>(item.first + row) * M + output;
        if (float_out) {
          store_8(static_cast<float*>(out_NM) + at, values);
        } else {
          store_8(static_cast<Bf16*>(out_NM) + at, values);
        }
      }
    }
  }
};

}  // namespace magister::gpu
