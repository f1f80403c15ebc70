// The head of a training pass: the numbers of a row's logits that its losses need, and the gradient that replaces the
// logits. Each kernel goes over the logits once.
// Legend: R rows of a chunk, V vocabulary, J tokens of a row whose logits are needed, G type of the gradient (Bf16 or
// float).
#pragma once

#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Computes for every row its largest logit, the sums of exp(z - largest) and of exp(factor (z - largest)), and the
// logits of the J tokens, all after the soft cap, which is applied to the logits in place. The sums of a row with a
// logit that is not finite are NaN, as on the CPU. Every thread has its own part of a row, and the parts are added in
// one order.
struct RowNumbers {
  static constexpr const char* kName = "row_numbers";
  static constexpr int kMaxThreads = 512;
  static constexpr std::int64_t kFirst = 3;  // numbers before the logits
  float* logits_RV;
  const std::int32_t* ids_RJ;
  float* numbers_RN;  // N = kFirst + J
  std::int64_t R, V, J;
  float factor, cap;  // factor 1: no second sum; cap 0: none
  bool eight;         // V is a multiple of eight, and rows begin at multiples of eight

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(R),
            .threads = V >= 8 * kMaxThreads ? static_cast<unsigned>(kMaxThreads) : 64u,
            .shared_bytes = kWarp * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    eight ? run<8>(t) : run<1>(t);
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    float* const row_V = logits_RV + t.block_x() * V;
    float largest = -INFINITY, sum = 0, second = 0;
    float bad = 0;  // NaN if a logit is not finite: -inf beside larger logits would add nothing to the sums
    for (std::int64_t v = t.thread() * kAtOnce; v < V; v += t.num_threads() * kAtOnce) {
      float z[kAtOnce];
      load<kAtOnce>(row_V + v, z);
      if (cap > 0) {
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) z[i] = tanhf(z[i] / cap) * cap;
        store<kAtOnce>(row_V + v, z);
      }
      float top = z[0];
      MAGISTER_UNROLL
      for (int i = 1; i < kAtOnce; ++i) top = fmaxf(top, z[i]);
      if (top > largest) {
        sum *= expf(largest - top);
        second *= expf(factor * (largest - top));
        largest = top;
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        sum += expf(z[i] - largest);
        bad += z[i] * 0.0f;
      }
      if (factor != 1.0f) {
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) second += expf(factor * (z[i] - largest));
      }
    }
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    const float top = block_max(t, largest, scratch);
    // A thread without logits adds nothing, whatever the others have.
    const bool any = t.thread() * kAtOnce < V;
    sum = block_sum(t, any ? sum * expf(largest - top) + bad : 0.0f, scratch);
    second = block_sum(t, any ? second * expf(factor * (largest - top)) + bad : 0.0f, scratch);
    float* const out_N = numbers_RN + t.block_x() * (kFirst + J);
    if (t.thread() == 0) {
      out_N[0] = top;
      out_N[1] = sum;
      out_N[2] = second;
    }
    for (std::int64_t j = t.thread(); j < J; j += t.num_threads())
      out_N[kFirst + j] = row_V[ids_RJ[t.block_x() * J + j]];
  }
};

// Every token's gradient by its logit before the cap: plain * exp(z - largest) + tempered * exp(factor (z - largest)),
// times the cap's derivative.
template <typename G>
struct LogitGradient {
  static constexpr const char* kName = "logit_gradient";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int64_t kEach = 4;  // times eight numbers per thread
  const float* logits_RV;
  const float* numbers_RN;
  const float* scales_R2;  // plain, tempered
  G* gradient_RV;          // may be the logits
  std::int64_t R, V, N;
  float factor, cap;
  bool eight;

  LaunchShape shape() const {
    const std::int64_t columns = kMaxThreads * kEach * (eight ? 8 : 1);
    return {.blocks_x = static_cast<unsigned>(R),
            .blocks_y = static_cast<unsigned>((V + columns - 1) / columns),
            .threads = static_cast<unsigned>(kMaxThreads)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    eight ? run<8>(t) : run<1>(t);
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t row = t.block_x();
    const float largest = numbers_RN[row * N], plain = scales_R2[2 * row], tempered = scales_R2[2 * row + 1];
    const std::int64_t begin = t.block_y() * kMaxThreads * kEach * kAtOnce;
    for (std::int64_t i = 0; i < kEach; ++i) {
      const std::int64_t v = begin + (i * kMaxThreads + t.thread()) * kAtOnce;
      if (v >= V) return;
      float z[kAtOnce];
      load<kAtOnce>(logits_RV + row * V + v, z);
      MAGISTER_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        float value = plain * expf(z[k] - largest);
        if (factor != 1.0f) value += tempered * expf(factor * (z[k] - largest));
        if (cap > 0) value *= 1.0f - z[k] / cap * (z[k] / cap);
        z[k] = value;
      }
      store<kAtOnce>(gradient_RV + row * V + v, z);
    }
  }
};

// Writes the few numbers that replace those of a softmax. No place is written twice.
template <typename G>
struct PlaceNumbers {
  static constexpr const char* kName = "place_numbers";
  static constexpr int kMaxThreads = 256;
  const std::int64_t* places;
  const float* values;
  G* out;
  std::int64_t count;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((count + kMaxThreads - 1) / kMaxThreads), .threads = 256};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t i = t.block_x() * kMaxThreads + t.thread();
    if (i < count) out[places[i]] = stored<G>(values[i]);
  }
};

}  // namespace magister::gpu
