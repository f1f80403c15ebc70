// Kernels at the two ends of AltUp's stream: its vectors are made of the embeddings, and joined again. Legend as in
// altup_kernels.h.
#pragma once

#include "model/gpu/altup_kernels.h"

namespace magister::gpu {

// Products whose mean square becomes that of the stream's first vector: its ends.
template <typename N>
struct StreamEnds {
  static constexpr float kLeastSquare = 1e-5f;
  const N* products[kMostStreams - 1];  // of vector 1 and the following
  std::int64_t stride;                  // numbers between two rows of a product
  std::int64_t A, D;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * kMostStreams * sizeof(float)};
  }

  // For the token of this block: the first number of factors is 0, the others multiply the products.
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void find(Thread& t, const float* first_D, float (&factors)[kMostStreams]) const {
    float sums[kMostStreams] = {};
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      MAGISTER_UNROLL
      for (int a = 0; a < kMostStreams; ++a) {
        if (a >= A) continue;
        float x[kAtOnce];
        if (a == 0) {
          load<kAtOnce>(first_D + d, x);
        } else {
          load<kAtOnce>(row(t, a) + d, x);
        }
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) sums[a] += x[i] * x[i];
      }
    }
    block_sums(t, sums, kMostStreams, reinterpret_cast<float*>(t.shared()));
    const float wanted = sqrtf(sums[0] / static_cast<float>(D));
    factors[0] = 0;
    MAGISTER_UNROLL
    for (int a = 1; a < kMostStreams; ++a)
      factors[a] = wanted / sqrtf(fmaxf(sums[a] / static_cast<float>(D), kLeastSquare));
  }

  template <typename Thread>
  MAGISTER_DEVICE const N* row(Thread& t, int a) const {
    return products[a - 1] + t.block_x() * stride;
  }
};

// The first vector is hidden, the others are its products.
template <typename N>
struct SpreadStream {
  static constexpr const char* kName = "spread_stream";
  static constexpr int kMaxThreads = 256;
  StreamEnds<N> ends;
  const float* hidden_TD;
  float* streams_TAD;

  LaunchShape shape(std::int64_t T) const { return ends.shape(T); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once((ends.D | ends.stride) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t A = ends.A, D = ends.D;
    const float* hidden_D = hidden_TD + t.block_x() * D;
    float* streams_AD = streams_TAD + t.block_x() * A * D;
    float factors[kMostStreams];
    ends.template find<kAtOnce>(t, hidden_D, factors);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      MAGISTER_UNROLL
      for (int a = 0; a < kMostStreams; ++a) {
        if (a >= A) continue;
        float x[kAtOnce];
        if (a == 0) {
          load<kAtOnce>(hidden_D + d, x);
        } else {
          load<kAtOnce>(ends.row(t, a) + d, x);
          MAGISTER_UNROLL
          for (int i = 0; i < kAtOnce; ++i) x[i] *= factors[a];
        }
        store<kAtOnce>(streams_AD + a * D + d, x);
      }
    }
  }
};

// hidden becomes the mean of the first vector and of the others' products.
template <typename N>
struct JoinStream {
  static constexpr const char* kName = "join_stream";
  static constexpr int kMaxThreads = 256;
  StreamEnds<N> ends;
  const float* streams_TAD;
  float* hidden_TD;

  LaunchShape shape(std::int64_t T) const { return ends.shape(T); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once((ends.D | ends.stride) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t A = ends.A, D = ends.D;
    const float* first_D = streams_TAD + t.block_x() * A * D;
    float factors[kMostStreams];
    ends.template find<kAtOnce>(t, first_D, factors);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float sum[kAtOnce];
      load<kAtOnce>(first_D + d, sum);
      MAGISTER_UNROLL
      for (int a = 1; a < kMostStreams; ++a) {
        if (a >= A) continue;
        float x[kAtOnce];
        load<kAtOnce>(ends.row(t, a) + d, x);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) sum[i] += x[i] * factors[a];
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum[i] /= static_cast<float>(A);
      store<kAtOnce>(hidden_TD + t.block_x() * D + d, sum);
    }
  }
};

}  // namespace magister::gpu
