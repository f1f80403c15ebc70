// Kernels of AltUp and Laurel, between products: they compute in f32 what model/cpu/altup.h defines. One block per
// token, and the bits of a token depend on no other.
// Legend: T packed tokens, A vectors of a token's stream, D hidden, N the type of products' outputs (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

constexpr int kMostStreams = 4;  // A at most: a thread holds a number of each vector in registers

// Sums of `count` numbers over a block, which every thread gets. scratch: 32 numbers of shared memory for each.
template <int kMost, typename Thread>
MAGISTER_DEVICE void block_sums(Thread& t, float (&values)[kMost], int count, float* scratch) {
  MAGISTER_UNROLL
  for (int i = 0; i < kMost; ++i) {
    if (i >= count) continue;
    values[i] = warp_sum(t, values[i]);
    if (t.lane() == 0) scratch[32 * i + t.warp()] = values[i];
  }
  t.sync();
  MAGISTER_UNROLL
  for (int i = 0; i < kMost; ++i) {
    if (i >= count) continue;
    values[i] = 0;
    for (int warp = 0; warp < t.num_warps(); ++warp) values[i] += scratch[32 * i + warp];
  }
  t.sync();
}

// The learned numbers of one step, f32, and its sizes. Coefficients are products of rows of `coefficients_XA` with the
// token's modalities, tanh(router(norm(x))).
struct AltUpStep {
  const float* router_AD;
  const float* norm_D;  // divided by D
  const float* coefficients_XA;
  std::int64_t A, D, active;
  float eps;

  static constexpr int kSums = kMostStreams + 1;
  static constexpr std::size_t kSharedNumbers = 32 * kSums + kMostStreams * kMostStreams;
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = kSharedNumbers * sizeof(float)};
  }

  // Adds kAtOnce numbers of x to the sums of the router's products, and to that of squares, the last one.
  template <int kAtOnce>
  MAGISTER_DEVICE void add(const float (&x)[kAtOnce], std::int64_t d, float (&sums)[kSums]) const {
    float norm[kAtOnce];
    load<kAtOnce>(norm_D + d, norm);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      sums[kMostStreams] += x[i] * x[i];
      norm[i] *= x[i];
    }
    MAGISTER_UNROLL
    for (int a = 0; a < kMostStreams; ++a) {
      if (a >= A) continue;
      float router[kAtOnce];
      load<kAtOnce>(router_AD + a * D + d, router);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sums[a] += norm[i] * router[i];
    }
  }

  // The `count` coefficients of the token, from the sums of all threads; in shared memory.
  template <typename Thread>
  MAGISTER_DEVICE const float* coefficients(Thread& t, float (&sums)[kSums], int count) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    float* out_X = scratch + 32 * kSums;
    block_sums(t, sums, kSums, scratch);
    const float scale = 1.0f / sqrtf(sums[kMostStreams] / static_cast<float>(D) + eps);
    if (t.thread() < count) {
      float sum = 0;
      MAGISTER_UNROLL
      for (int a = 0; a < kMostStreams; ++a) {
        if (a < A) sum += coefficients_XA[t.thread() * A + a] * tanhf(scale * sums[a]);
      }
      out_X[t.thread()] = sum;
    }
    t.sync();
    return out_X;
  }
};

// The stream becomes its prediction; hidden_TD becomes the active vector.
struct PredictStream {
  static constexpr const char* kName = "predict_stream";
  static constexpr int kMaxThreads = 256;
  AltUpStep step;  // [A A, A]: row (o, i) gives the part of vector i in the prediction of vector o
  float *streams_TAD, *hidden_TD;

  LaunchShape shape(std::int64_t T) const { return step.shape(T); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(step.D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t A = step.A, D = step.D;
    float *streams_AD = streams_TAD + t.block_x() * A * D, *hidden_D = hidden_TD + t.block_x() * D;
    float sums[AltUpStep::kSums] = {};
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kAtOnce];
      load<kAtOnce>(streams_AD + step.active * D + d, x);
      step.add<kAtOnce>(x, d, sums);
    }
    const float* parts_AA = step.coefficients(t, sums, static_cast<int>(A * A));
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kMostStreams][kAtOnce] = {};
      MAGISTER_UNROLL
      for (int a = 0; a < kMostStreams; ++a) {
        if (a < A) load<kAtOnce>(streams_AD + a * D + d, x[a]);
      }
      MAGISTER_UNROLL
      for (int o = 0; o < kMostStreams; ++o) {
        if (o >= A) continue;
        float out[kAtOnce];
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) out[i] = x[o][i];
        MAGISTER_UNROLL
        for (int a = 0; a < kMostStreams; ++a) {
          if (a >= A) continue;
          const float part = parts_AA[o * A + a];
          MAGISTER_UNROLL
          for (int i = 0; i < kAtOnce; ++i) out[i] += part * x[a][i];
        }
        store<kAtOnce>(streams_AD + o * D + d, out);
        if (o == step.active) store<kAtOnce>(hidden_D + d, out);
      }
    }
  }
};

// Corrects the predictions by hidden + delta, which the layer's blocks have made of the active vector. read_TD becomes
// the corrected active vector times scale_D. Delta: N, or float for a sum over shards.
template <typename N, typename Delta = N>
struct CorrectStream {
  static constexpr const char* kName = "correct_stream";
  static constexpr int kMaxThreads = 256;
  AltUpStep step;  // [A, A]
  const float* hidden_TD;
  const Delta* delta_TD;
  float* streams_TAD;
  const float* scale_D;  // or nullptr
  N* read_TD;

  LaunchShape shape(std::int64_t T) const { return step.shape(T); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(step.D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  // The blocks' output.
  template <int kAtOnce>
  MAGISTER_DEVICE void load_block(std::int64_t index, float (&x)[kAtOnce]) const {
    float delta[kAtOnce];
    load<kAtOnce>(hidden_TD + index, x);
    load<kAtOnce>(delta_TD + index, delta);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) x[i] += delta[i];
  }

  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t A = step.A, D = step.D, first = t.block_x() * D;
    float* streams_AD = streams_TAD + first * A;
    float sums[AltUpStep::kSums] = {};
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kAtOnce];
      load_block<kAtOnce>(first + d, x);
      step.add<kAtOnce>(x, d, sums);
    }
    const float* parts_A = step.coefficients(t, sums, static_cast<int>(A));
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float change[kAtOnce], predicted[kAtOnce];
      load_block<kAtOnce>(first + d, change);
      load<kAtOnce>(streams_AD + step.active * D + d, predicted);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) change[i] -= predicted[i];
      MAGISTER_UNROLL
      for (int o = 0; o < kMostStreams; ++o) {
        if (o >= A) continue;
        float out[kAtOnce];
        load<kAtOnce>(streams_AD + o * D + d, out);
        const float part = 1.0f + parts_A[o];
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) out[i] += part * change[i];
        store<kAtOnce>(streams_AD + o * D + d, out);
        if (o == step.active) read<kAtOnce>(out, d, first);
      }
    }
  }

  template <int kAtOnce>
  MAGISTER_DEVICE void read(float (&corrected)[kAtOnce], std::int64_t d, std::int64_t first) const {
    if (scale_D != nullptr) {
      float scale[kAtOnce];
      load<kAtOnce>(scale_D + d, scale);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) corrected[i] *= scale[i];
    }
    store<kAtOnce>(read_TD + first + d, corrected);
  }
};

// Laurel: hidden becomes hidden + x + norm(product), where x is attention's normed input in f32.
template <typename N>
struct AddLaurel {
  static constexpr const char* kName = "add_laurel";
  static constexpr int kMaxThreads = 256;
  float* hidden_TD;
  const N* product_TD;
  const float *input_norm_D, *output_norm_D;
  std::int64_t D;
  float eps;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 64 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    float* hidden_D = hidden_TD + t.block_x() * D;
    const N* product_D = product_TD + t.block_x() * D;
    float sums[2] = {};
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kAtOnce], y[kAtOnce];
      load<kAtOnce>(hidden_D + d, x);
      load<kAtOnce>(product_D + d, y);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        sums[0] += x[i] * x[i];
        sums[1] += y[i] * y[i];
      }
    }
    block_sums(t, sums, 2, reinterpret_cast<float*>(t.shared()));
    const float of_input = 1.0f / sqrtf(sums[0] / static_cast<float>(D) + eps),
                of_output = 1.0f / sqrtf(sums[1] / static_cast<float>(D) + eps);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kAtOnce], y[kAtOnce], input_norm[kAtOnce], output_norm[kAtOnce];
      load<kAtOnce>(hidden_D + d, x);
      load<kAtOnce>(product_D + d, y);
      load<kAtOnce>(input_norm_D + d, input_norm);
      load<kAtOnce>(output_norm_D + d, output_norm);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) x[i] += input_norm[i] * (x[i] * of_input) + output_norm[i] * (y[i] * of_output);
      store<kAtOnce>(hidden_D + d, x);
    }
  }
};

}  // namespace magister::gpu
