// RMS norms on q and k over the heads of all shards (OLMo 2, OLMoE): each shard computes sums of squares, the group
// adds them, and then the norm is applied. Rows that consist of whole multiples of eight numbers, as most head sizes
// give, are read 16 bytes at a time.
// Legend: T packed tokens, H query heads and K KV heads of this shard, E head_dim, A the activations' type (Bf16 or
// float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// One block per token: the sum of squares of its q, and of its k without the KV heads that an earlier shard counts.
template <typename A>
struct SumHeadSquares {
  static constexpr const char* kName = "sum_head_squares";
  static constexpr int kMaxThreads = 256;
  const A* qkv_TQ;  // [T, (H + 2K) E]
  float* squares_T2;
  // Numbers of a row and of its q, the first counted key number, and the number of counted key numbers.
  std::int64_t stride, q_numbers, first_k, k_numbers;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    const A* row = qkv_TQ + t.block_x() * stride;
    at_once((stride | q_numbers | first_k | k_numbers) % 8 == 0, [&](auto n) {
      const float q = sum_of_squares<n.kCount>(t, row, q_numbers, scratch),
                  k = sum_of_squares<n.kCount>(t, row + first_k, k_numbers, scratch);
      if (t.thread() != 0) return;
      squares_T2[2 * t.block_x()] = q;
      squares_T2[2 * t.block_x() + 1] = k;
    });
  }
};

// One block per token: norms q and k in place, with the summed squares of all_q and all_k numbers.
template <typename A>
struct NormHeads {
  static constexpr const char* kName = "norm_heads";
  static constexpr int kMaxThreads = 256;
  A* qkv_TQ;  // [T, (H + 2K) E]
  const float* squares_T2;
  const float *q_norm_HE, *k_norm_KE;
  std::int64_t stride, q_numbers, k_numbers;
  float all_q, all_k, eps;

  LaunchShape shape(std::int64_t T) const { return {.blocks_x = static_cast<unsigned>(T), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once((stride | q_numbers | k_numbers) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    A* row = qkv_TQ + t.block_x() * stride;
    const float q_scale = 1.0f / sqrtf(squares_T2[2 * t.block_x()] / all_q + eps);
    const float k_scale = 1.0f / sqrtf(squares_T2[2 * t.block_x() + 1] / all_k + eps);
    for (std::int64_t i = t.thread() * kAtOnce; i < q_numbers + k_numbers; i += t.num_threads() * kAtOnce) {
      const bool is_key = i >= q_numbers;
      float values[kAtOnce], weights[kAtOnce];
      load<kAtOnce>(row + i, values);
      load<kAtOnce>(is_key ? k_norm_KE + (i - q_numbers) : q_norm_HE + i, weights);
      MAGISTER_UNROLL
      for (int j = 0; j < kAtOnce; ++j) values[j] = weights[j] * (values[j] * (is_key ? k_scale : q_scale));
      store<kAtOnce>(row + i, values);
    }
  }
};

}  // namespace magister::gpu
