// Sums over the keys of a row, as grouped attention keeps them: for a chunk, and for all chunks in ascending order. A
// block that computes several chunks and FoldChunks, which reads the sums of single ones, add them by the same
// operations, so how many chunks a block has changes no bit.
// Source: flash decoding (Dao et al., 2023), the online softmax. Legend: as in attention_kernels.h.
#pragma once

#include "magister/device/numbers_at_once.h"
#include "model/gpu/attention_arguments.h"

namespace magister::gpu {

// Chunks [begin, end) whose keys a row sees.
struct RowChunks {
  int begin, end;
  MAGISTER_DEVICE RowChunks(int visible, int first)
      : begin(first / kAttentionChunk), end((visible + kAttentionChunk - 1) / kAttentionChunk) {}
  // True if a block of `span` chunks computes the whole row, and so its output.
  MAGISTER_DEVICE bool in_one_block(int span) const { return end == 0 || begin / span == (end - 1) / span; }
};

// Sums over keys: the maximum of their scores, exponentials of scores less it, and eight numbers of the values times
// these, kVectors times.
template <int kVectors>
struct KeySums {
  float best = -INFINITY, total = 0, numbers[kVectors][8] = {};

  // Adds sums over later keys: begin_adding(), then each of their vectors.
  struct Factors {
    float own, other;
  };
  MAGISTER_DEVICE Factors begin_adding(float other_best, float other_total) {
    const float most = fmaxf(best, other_best);
    const Factors factors{expf(best - most), expf(other_best - most)};
    total = fmaf(factors.other, other_total, factors.own * total);
    best = most;
    return factors;
  }
  MAGISTER_DEVICE void add(const Factors& factors, int vector, const float (&others)[8]) {
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) numbers[vector][i] = fmaf(factors.other, others[i], factors.own * numbers[vector][i]);
  }
  // A sink is a score without a value.
  MAGISTER_DEVICE void begin_with_sink(float sink) {
    best = sink;
    total = 1;
  }
  MAGISTER_DEVICE void write(Bf16* out, int vector, bool has_keys) const {
    float quotients[8];
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) quotients[i] = has_keys ? numbers[vector][i] / total : 0.0f;
    store_8(out, quotients);
  }
};

// Adds the chunks of a row and head in ascending order, after its sink, unless one block has computed the row. V is a
// multiple of 8; a thread has eight numbers of a head.
struct FoldChunks {
  static constexpr const char* kName = "fold_chunks";
  static constexpr int kMaxThreads = 128;
  static constexpr int kAtOnce = 4;  // chunks whose loads are in flight
  AttentionArguments<Bf16> a;
  int span;  // chunks of a block of GroupedAttention

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>((a.H * (a.V / 8) + kMaxThreads - 1) / kMaxThreads),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), visible = a.visible_R[row], vectors = a.V / 8,
              index = static_cast<int>(t.block_y()) * kMaxThreads + t.thread(), head = index / vectors,
              column = index % vectors * 8;
    const RowChunks seen(visible, first_key(a, visible));
    if (head >= a.H || seen.in_one_block(span)) return;
    const std::int64_t row_head = static_cast<std::int64_t>(row) * a.H + head;
    const float* const stats = a.partial_RHC2 + row_head * a.C * 2;
    const float* const numbers = a.partial_RHCV + row_head * a.C * a.V + column;
    KeySums<1> sums;
    if (a.sinks_H != nullptr) sums.begin_with_sink(a.sinks_H[head]);
    for (int first = seen.begin; first < seen.end; first += kAtOnce) {
      float of_chunks[kAtOnce][8], best[kAtOnce], total[kAtOnce];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t chunk = first + i < seen.end ? first + i : seen.end - 1;
        best[i] = stats[2 * chunk];
        total[i] = stats[2 * chunk + 1];
        load_8(numbers + chunk * a.V, of_chunks[i]);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= seen.end) break;
        sums.add(sums.begin_adding(best[i], total[i]), 0, of_chunks[i]);
      }
    }
    sums.write(a.out + row * a.out_stride + static_cast<std::int64_t>(head) * a.V + column, 0, true);
  }
};

}  // namespace magister::gpu
