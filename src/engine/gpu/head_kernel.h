// ReduceLogits: computes the kept part of each row of a tile of logits [R, v] in one pass over the row: maximum, sum of
// exponentials, weighted sum, the target's logit and the exact best candidates. One block per row. Candidates above the
// current threshold are appended in shared memory; when it is full they are sorted and the threshold rises. For logits
// in random order, about kept * ln(v / kept) candidates are appended per row; any other order costs time only. The
// kernel is limited by memory bandwidth: a thread has four loads of 16 bytes in flight, and issues the next load before
// it uses the previous ones.
// Legend: R rows of a tile, v this shard's part of the vocabulary, W numbers of a share.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

struct ReduceLogits {
  static constexpr const char* kName = "reduce_logits";
  static constexpr int kMaxThreads = 256;
  static constexpr int kCapacity = 2048;          // candidates in shared memory
  static constexpr int kChunk = 4 * kMaxThreads;  // columns between two checks of the count; 16 bytes per thread
  static constexpr int kAhead = 4;                // chunks in flight
  static constexpr int kMostKept = kCapacity - kChunk;
  static constexpr int kNumbers = 4;

  const float* logits_Rv;         // 16-byte aligned
  const std::int32_t* targets_R;  // ids in the whole vocabulary; -1: no target
  std::int64_t* shares_RW;  // maximum, sum, weighted sum, target logit as doubles' bits; then `kept` pairs {logit, id}
  std::int64_t v, vocab_begin, W;
  int kept;  // at most kMostKept

  LaunchShape shape(std::int64_t rows) const {
    return {.blocks_x = static_cast<unsigned>(rows), .threads = kMaxThreads, .shared_bytes = sizeof(Shared)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto& shared = *reinterpret_cast<Shared*>(t.shared());
    const float* row_v = logits_Rv + t.block_x() * v;
    const std::int64_t target = targets_R[t.block_x()] - vocab_begin;
    if (t.thread() == 0) {
      shared.count = 0;
      shared.threshold = -INFINITY;
      shared.target = -INFINITY;
    }
    t.sync();
    Running sums;
    float ahead[kAhead][4] = {};
    MAGISTER_UNROLL
    for (int c = 0; c < kAhead; ++c) load(row_v, c * kChunk + 4 * t.thread(), ahead[c]);
    for (std::int64_t first = 0; first < v; first += kAhead * kChunk) {
      MAGISTER_UNROLL
      for (int c = 0; c < kAhead; ++c) {
        const std::int64_t column = first + c * kChunk + 4 * t.thread();
        if (first + c * kChunk >= v) continue;  // the same for all threads
        float logits[4];
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) logits[i] = ahead[c][i];
        load(row_v, column + kAhead * kChunk, ahead[c]);
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (column + i >= v) continue;
          sums.add(logits[i]);
          if (column + i == target) shared.target = logits[i];
          if (kept > 0 && logits[i] > shared.threshold) {
            shared.keys[t.add_shared(&shared.count, 1)] =
                key_of(logits[i], static_cast<std::uint32_t>(vocab_begin + column + i));
          }
        }
        t.sync();
        if (shared.count > kCapacity - kChunk) select(t, shared);
        t.sync();  // all threads must read the count before it grows again
      }
    }
    if (kept > 0) select(t, shared);
    write(t, shared, sums);
  }

 private:
  // Loads four neighbours; those after the end of the row stay unchanged. If v is not a multiple of four, rows are not
  // aligned.
  MAGISTER_DEVICE void load(const float* row_v, std::int64_t column, float (&to)[4]) const {
    if (column >= v) return;
    if (v % 4 == 0) {
      const Words4 words = load_16_once(row_v + column);
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) to[i] = bits_as_float(words.word[i]);
      return;
    }
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (column + i < v) to[i] = row_v[column + i];
    }
  }

  struct Shared {
    std::uint64_t keys[kCapacity];
    double scratch[32];
    int count;
    float threshold, target;
  };

  // Sums of exp(x - maximum) and (x - maximum) exp(x - maximum), rescaled when the maximum rises.
  struct Running {
    float maximum = -INFINITY, sum = 0, weighted = 0;

    MAGISTER_DEVICE void add(float x) {
      if (!(x - x == 0.0f)) {  // NaN or infinite: makes the sum NaN, because comparisons would ignore such a value
        sum = NAN;
        return;
      }
      if (x > maximum) {
        rescale(x);
        sum += 1.0f;
        return;
      }
      const float shift = x - maximum;
      if (!(shift > -104.0f)) return;  // the term is smaller than the smallest f32
      const float term = expf(shift);
      sum += term;
      weighted += shift * term;
    }
    MAGISTER_DEVICE void rescale(float larger) {
      if (sum > 0) {
        const float shift = maximum - larger, factor = expf(shift);
        weighted = factor > 0 ? factor * (weighted + shift * sum) : 0.0f;
        sum *= factor;
      }
      maximum = larger;
    }
  };

  // Larger keys are better: the logit's bits in an order that integers have, then the lower id.
  static MAGISTER_DEVICE std::uint64_t key_of(float logit, std::uint32_t id) {
    const std::uint32_t bits = float_as_bits(logit + 0.0f);  // -0 becomes 0: they are equal
    const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - id);
  }
  static MAGISTER_DEVICE float logit_of(std::uint64_t key) {
    const auto ordered = static_cast<std::uint32_t>(key >> 32);
    return bits_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
  }
  static MAGISTER_DEVICE std::uint32_t id_of(std::uint64_t key) {
    return 0xffffffffu - static_cast<std::uint32_t>(key);
  }

  // Sorts the candidates, best first, and keeps the first `kept`. Bitonic sort: Batcher, AFIPS 1968.
  template <typename Thread>
  MAGISTER_DEVICE void select(Thread& t, Shared& shared) const {
    t.sync();
    const int count = shared.count;
    int size = 2;
    while (size < count) size *= 2;
    for (int i = count + t.thread(); i < size; i += t.num_threads()) shared.keys[i] = 0;
    t.sync();
    for (int width = 2; width <= size; width *= 2) {
      for (int step = width / 2; step > 0; step /= 2) {
        for (int pair = t.thread(); pair < size / 2; pair += t.num_threads()) {
          const int low = 2 * pair - (pair & (step - 1)), high = low + step;
          const bool descending = (low & width) == 0;
          const std::uint64_t a = shared.keys[low], b = shared.keys[high];
          if ((a < b) == descending) {
            shared.keys[low] = b;
            shared.keys[high] = a;
          }
        }
        t.sync();
      }
    }
    if (t.thread() == 0 && count >= kept) {
      shared.count = kept;
      shared.threshold = logit_of(shared.keys[kept - 1]);
    }
    t.sync();
  }

  template <typename Thread>
  MAGISTER_DEVICE void write(Thread& t, Shared& shared, Running sums) const {
    auto* floats = reinterpret_cast<float*>(shared.scratch);
    const float maximum = block_max(t, sums.maximum, floats);
    if (maximum > -INFINITY) sums.rescale(maximum);
    const double sum = block_sum(t, static_cast<double>(sums.sum), shared.scratch);
    const double weighted = block_sum(t, static_cast<double>(sums.weighted), shared.scratch);
    std::int64_t* share = shares_RW + t.block_x() * W;
    if (t.thread() == 0) {
      share[0] = double_as_bits(maximum);
      share[1] = double_as_bits(sum);
      share[2] = double_as_bits(weighted);
      share[3] = double_as_bits(shared.target);
    }
    for (int i = t.thread(); i < kept; i += t.num_threads()) {
      const bool hole = i >= shared.count;  // fewer than `kept` logits are finite
      const std::uint32_t logit = float_as_bits(hole ? -INFINITY : logit_of(shared.keys[i]));
      const std::uint32_t id = hole ? 0xffffffffu : id_of(shared.keys[i]);
      share[kNumbers + i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(id) << 32 | logit);
    }
  }
};

}  // namespace magister::gpu
