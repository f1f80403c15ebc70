// Kernels of a mixture of experts around its products: the inputs of an expert, the sum of a token's outputs, and the
// sum with the output of an MLP beside them. The choice of experts: route_kernels.h.
// Legend: T packed tokens, D hidden, k experts per token, N rows of an expert, A the activations' type (Bf16 or float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// out[n] = the row of the token of route n, times the route's weight if there are weights: an expert's input.
template <typename A>
struct GatherTokens {
  static constexpr const char* kName = "gather_tokens";
  static constexpr int kMaxThreads = 256;
  const A* x_TD;
  const std::int32_t* route_N;  // indices into [T, k]
  const float* weights_Tk;      // or nullptr
  A* out_ND;
  std::int64_t D;
  int k;

  LaunchShape shape(std::int64_t N) const { return {.blocks_x = static_cast<unsigned>(N), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int32_t route = route_N[t.block_x()];
    const A* row = x_TD + route / k * D;
    const float weight = weights_Tk != nullptr ? weights_Tk[route] : 1.0f;
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float values[kAtOnce];
      load<kAtOnce>(row + d, values);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] *= weight;
      store<kAtOnce>(out_ND + t.block_x() * D + d, values);
    }
  }
};

// out[t] = the sum over i of weights[t, i] * rows[row_of[t, i]], in f32 and in this order. Without weights they are 1.
// Routes with the row -1 add nothing.
template <typename A>
struct SumExperts {
  static constexpr const char* kName = "sum_experts";
  static constexpr int kMaxThreads = 256;
  const A* rows_ND;
  const std::int32_t* row_of_Tk;
  const float* weights_Tk;  // or nullptr
  A* out_TD;
  std::int64_t D;
  int k;

  LaunchShape shape(std::int64_t T) const { return {.blocks_x = static_cast<unsigned>(T), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t first = t.block_x() * k;
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float sums[kAtOnce] = {};
      for (int i = 0; i < k; ++i) {
        const std::int64_t n = row_of_Tk[first + i];
        if (n < 0) continue;
        float row[kAtOnce];
        load<kAtOnce>(rows_ND + n * D + d, row);
        const float weight = weights_Tk != nullptr ? weights_Tk[first + i] : 1.0f;
        MAGISTER_UNROLL
        for (int j = 0; j < kAtOnce; ++j) sums[j] += weight * row[j];
      }
      store<kAtOnce>(out_TD + t.block_x() * D + d, sums);
    }
  }
};

// out = weight_a * a / rms(a) + weight_b * b / rms(b).
template <typename A>
struct AddNormedRows {
  static constexpr const char* kName = "add_normed_rows";
  static constexpr int kMaxThreads = 256;
  const A* a_TD;
  const A* b_TD;
  const float* weight_a_D;
  const float* weight_b_D;
  float* out_TD;
  std::int64_t D;
  float eps;

  // One block per token.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  // 1 / rms of the row of this block.
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE float scale_of(Thread& t, const A* row_D) const {
    const float squares = sum_of_squares<kAtOnce>(t, row_D, D, reinterpret_cast<float*>(t.shared()));
    return 1.0f / sqrtf(squares / static_cast<float>(D) + eps);
  }

  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t first = t.block_x() * D;
    const float scale_a = scale_of<kAtOnce>(t, a_TD + first), scale_b = scale_of<kAtOnce>(t, b_TD + first);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float a[kAtOnce], b[kAtOnce], of_a[kAtOnce], of_b[kAtOnce];
      load<kAtOnce>(a_TD + first + d, a);
      load<kAtOnce>(b_TD + first + d, b);
      load<kAtOnce>(weight_a_D + d, of_a);
      load<kAtOnce>(weight_b_D + d, of_b);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) a[i] = of_a[i] * (a[i] * scale_a) + of_b[i] * (b[i] * scale_b);
      store<kAtOnce>(out_TD + first + d, a);
    }
  }
};

}  // namespace magister::gpu
