// Reads from a row of logits [R, v] what a judge needs: its maximum, the sum of exponentials relative to it, and the
// logits of a few tokens. One block per row; a row is read once, with four loads of 16 bytes in flight per thread, as
// in ReduceLogits. The bits of a row do not depend on other rows.
// Legend: R rows, v this shard's part of the vocabulary, N wanted tokens of all rows.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

struct WantedLogits {
  static constexpr const char* kName = "wanted_logits";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAhead = 4;  // loads in flight

  const float* logits_Rv;
  const std::int32_t* first_R1;  // wanted tokens of row r: [first[r], first[r + 1])
  const std::int32_t* ids_N;     // in the whole vocabulary
  double* sums_2R;               // maximum and sum of each row; the sum is NaN if a logit is not finite
  double* found_N;               // -infinity for a token that another shard has
  std::int64_t v, vocab_begin;

  LaunchShape shape(std::int64_t rows) const {
    return {.blocks_x = static_cast<unsigned>(rows), .threads = kMaxThreads, .shared_bytes = 32 * sizeof(double)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<double*>(t.shared());
    const std::int64_t r = t.block_x();
    const float* row_v = logits_Rv + r * v;
    Running running;
    if (v % 4 == 0) {
      add_words(t, row_v, running);
    } else {  // rows are not aligned
      for (std::int64_t i = t.thread(); i < v; i += t.num_threads()) running.add(row_v[i]);
    }
    const float maximum = block_max(t, running.maximum, reinterpret_cast<float*>(scratch));
    running.rescale(maximum);
    const double sum = block_sum(t, running.sum, scratch);
    if (t.thread() == 0) {
      sums_2R[2 * r] = maximum;
      sums_2R[2 * r + 1] = sum;
    }
    for (std::int32_t i = first_R1[r] + t.thread(); i < first_R1[r + 1]; i += t.num_threads()) {
      const std::int64_t column = ids_N[i] - vocab_begin;
      found_N[i] = column >= 0 && column < v ? static_cast<double>(row_v[column]) : -INFINITY;
    }
  }

 private:
  // Sum of exp(x - maximum) in double, rescaled when the maximum rises.
  struct Running {
    float maximum = -INFINITY;
    double sum = 0;

    MAGISTER_DEVICE void add(float x) {
      if (!(x - x == 0.0f)) {  // NaN or infinite: makes the sum NaN, because comparisons would ignore such a value
        sum = NAN;
        return;
      }
      if (x > maximum) rescale(x);
      sum += expf(x - maximum);
    }
    MAGISTER_DEVICE void rescale(float larger) {
      if (sum != 0) sum *= expf(maximum - larger);  // a thread without numbers has an infinite maximum
      maximum = larger;
    }
  };

  template <typename Thread>
  MAGISTER_DEVICE void add_words(Thread& t, const float* row_v, Running& running) const {
    const std::int64_t step = 4 * t.num_threads();
    for (std::int64_t first = 4 * t.thread(); first < v; first += kAhead * step) {
      Words4 words[kAhead] = {};
      MAGISTER_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (first + i * step < v) words[i] = load_16_once(row_v + first + i * step);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (first + i * step >= v) continue;
        MAGISTER_UNROLL
        for (int j = 0; j < 4; ++j) running.add(bits_as_float(words[i].word[j]));
      }
    }
  }
};

}  // namespace magister::gpu
