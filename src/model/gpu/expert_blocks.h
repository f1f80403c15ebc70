// ExpertBlocks: the common part of the products of all experts of a layer in one launch. It knows which rows and
// outputs a block has, and copies x and the weights to shared memory, some steps ahead of the sums.
// Legend: N sorted routes, M outputs, K inputs, X experts, I items, R routes a token.
#pragma once

#include "model/gpu/grouped_product_kernel.h"
#include "model/gpu/kept.h"

namespace magister::gpu {

// Weights of experts [begin, end), one after the other.
struct ExpertSlice {
  const unsigned char* weights = nullptr;  // nullptr: every expert's weights are at its own place
  int begin = 0, end = 0;
};

// A block has up to 128 rows of an expert and kOutputs of its outputs, and a step has 64 bytes of each row. A stage
// holds these bytes as rows of four chunks of 16 bytes. Chunk c of row r of x stands at chunk c ^ (r / 2) % 4, and
// chunk c of an output's weights at c ^ (r / kTurn) % 4. Eight lanes then read the same chunk of eight rows from
// different banks, if the rows are neighbours (kTurn 2), or pairs that are 16 apart (kTurn 16).
template <typename A, int kBlockOutputs, int kTurn>
struct ExpertBlocks {
  using Number = A;
  static constexpr int kMaxThreads = 256;
  static constexpr int kRowBytes = 64, kInputs = kRowBytes / static_cast<int>(sizeof(A));
  static constexpr int kRows = 128, kOutputs = kBlockOutputs;
  static constexpr int kXBytes = kRows * kRowBytes, kStageBytes = kXBytes + kOutputs * kRowBytes;
  static constexpr int kStages = 4;  // at most 96 KB: compute capability 8.6 has 99
  static constexpr int kLanesARow = kRowBytes / 16, kRowsAtOnce = kMaxThreads / kLanesARow;
  static constexpr int kXCopies = kRows / kRowsAtOnce, kWeightCopies = kOutputs / kRowsAtOnce;
  const A* x_TK;
  std::int64_t x_stride;        // in numbers
  const std::int32_t* route_N;  // row n of x is the token of route n; nullptr: row n is row n
  int R;
  const ExpertPlace* places_X;
  const ExpertRows* items_I;  // of at most kRows rows
  int I;
  std::int64_t weight_bytes;  // of a row
  int M, K;                   // multiples of 8, as x_stride; all rows begin at multiples of 16 bytes
  void* out_NM;               // contiguous; f32, or bf16 where A is
  bool float_out;
  ExpertSlice slice{};  // blocks of other experts leave

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((M + kOutputs - 1) / kOutputs),
            .blocks_y = static_cast<unsigned>(I),
            .threads = kMaxThreads,
            .shared_bytes = static_cast<std::size_t>(kStages) * kStageBytes};
  }

 protected:
  MAGISTER_DEVICE int steps() const { return (K + kInputs - 1) / kInputs; }
  template <typename Thread>
  MAGISTER_DEVICE static unsigned char* stage(Thread& t, int step) {
    return t.shared() + step % kStages * kStageBytes;
  }

  // False: the block has nothing to do. All threads of a block get the same answer.
  MAGISTER_DEVICE bool has_work(const ExpertRows& item) const {
    return item.rows > 0 && (slice.weights == nullptr || (item.expert >= slice.begin && item.expert < slice.end));
  }
  MAGISTER_DEVICE const unsigned char* weights_of(const ExpertRows& item) const {
    if (slice.weights == nullptr) return places_X[item.expert].rows;
    return slice.weights + static_cast<std::int64_t>(item.expert - slice.begin) * M * weight_bytes;
  }

  // The 16 bytes of the next step that a thread copies of some rows of x and of the weights. Without a row nothing is
  // copied, and nothing reads its place but sums that are not stored.
  struct Copies {
    const unsigned char *x[kXCopies], *weights;
    int to_x, to_weights;  // in a stage
    int rows, outputs;     // how many rows there are to copy
  };

  template <typename Thread>
  MAGISTER_DEVICE Copies copies_of(Thread& t, const ExpertRows& item, const unsigned char* weights) const {
    const int row = t.thread() / kLanesARow, chunk = t.thread() % kLanesARow,
              output = static_cast<int>(t.block_x()) * kOutputs + row;
    Copies copies;
    MAGISTER_UNROLL
    for (int i = 0; i < kXCopies; ++i) {
      const int of_item = row + i * kRowsAtOnce, n = item.first + (of_item < item.rows ? of_item : 0);
      copies.x[i] = reinterpret_cast<const unsigned char*>(x_TK + (route_N != nullptr ? route_N[n] / R : n) * x_stride +
                                                           chunk * (kInputs / kLanesARow));
    }
    copies.weights = weights + output * weight_bytes + chunk * 16;
    copies.to_x = row * kRowBytes + (chunk ^ (row / 2 % 4)) * 16;
    copies.to_weights = kXBytes + ((chunk ^ (row / kTurn % 4)) - (chunk ^ (row / 2 % 4))) * 16;
    copies.rows = copies_below(item.rows - row);
    copies.outputs = copies_below(M - output);
    return copies;
  }

  // Starts the copies of a step, as one group; inputs beyond K are zeros. After the last step the group is empty. It is
  // called for each step once, in their order.
  template <typename Thread>
  MAGISTER_DEVICE void fetch(Thread& t, Copies& copies, int step) const {
    const int first = step * kInputs;
    if (first < K) {
      unsigned char *const x = kept(stage(t, step) + copies.to_x), *const weights = x + copies.to_weights;
      const bool there = first + t.thread() % kLanesARow * (kInputs / kLanesARow) < K;
      MAGISTER_UNROLL
      for (int i = 0; i < kXCopies; ++i) {
        if (i < copies.rows) t.copy_16(x + i * kRowsAtOnce * kRowBytes, copies.x[i], there);
        copies.x[i] += kRowBytes;
      }
      const unsigned char* from = copies.weights;
      MAGISTER_UNROLL
      for (int i = 0; i < kWeightCopies; ++i) {
        if (i < copies.outputs) t.copy_16(weights + i * kRowsAtOnce * kRowBytes, from, there);
        from += kRowsAtOnce * weight_bytes;
      }
      copies.weights += kRowBytes;
    }
    t.end_copies();
  }

 private:
  // How many of the rows 0, kRowsAtOnce, 2 kRowsAtOnce ... are below `left`.
  MAGISTER_DEVICE static int copies_below(int left) { return left <= 0 ? 0 : (left + kRowsAtOnce - 1) / kRowsAtOnce; }
};

}  // namespace magister::gpu
