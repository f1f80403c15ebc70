// Kernels between the products of latent attention (MLA): the short vectors of a token, and the rows of heads that
// attention reads. Each reads its input once and writes its output once.
// Legend: T packed tokens, H heads of this shard, L query_rank, C rank of the latent, R rope_dim, N nope_dim, V
// value_dim, E = N + R, W = C + R, X numbers of a padded head, A the activations' type (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"
#include "model/gpu/page_slots.h"

namespace magister::gpu {

// (low, high) of a rotary pair -> (low cos - high sin, high cos + low sin), for pairs stored as halves.
template <int kAtOnce>
MAGISTER_DEVICE void turn_pairs(const float* cos_at, const float* sin_at, float (&low)[kAtOnce],
                                float (&high)[kAtOnce]) {
  float cos[kAtOnce], sin[kAtOnce];
  load<kAtOnce>(cos_at, cos);
  load<kAtOnce>(sin_at, sin);
  MAGISTER_UNROLL
  for (int i = 0; i < kAtOnce; ++i) {
    const float turned = high[i] * cos[i] + low[i] * sin[i];
    low[i] = low[i] * cos[i] - high[i] * sin[i];
    high[i] = turned;
  }
}

// One block per token: norms the queries' short vector and the latent, rotates the key beside it, and writes latent and
// key into the pages of a cache if there is one.
template <typename A>
struct ShortVectors {
  static constexpr const char* kName = "short_vectors";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int64_t kSlots = kPageSlots;
  const A* short_TA;  // [T, stride]: the queries' vector, or the queries themselves; the latent; the key
  A* queries_TL;      // nullptr where queries are one product
  A* tokens_TW;       // the latent, then the rotated key
  const float *q_norm_L, *k_norm_C;
  const float *cos_PR2, *sin_PR2;  // rotary tables, and each token's row in them
  const std::int32_t* rows_T;
  A* pages;                     // [P, 1, 48, W], and the slot of every token; nullptr without a cache
  const std::int64_t* slots_T;  // page * 48 + slot in the page
  std::int64_t stride, L, C, R;
  float eps;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once((stride | L | C | R / 2) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t token = t.block_x(), W = C + R;
    const A* row = short_TA + token * stride;
    if (queries_TL != nullptr) norm<kAtOnce>(t, row, q_norm_L, L, queries_TL + token * L, static_cast<A*>(nullptr));
    A* const to = tokens_TW + token * W;
    A* const page = slots_T != nullptr ? pages + slots_T[token] * W : nullptr;
    row += stride - W;
    norm<kAtOnce>(t, row, k_norm_C, C, to, page);
    const std::int64_t half = R / 2, table = rows_T[token] * half;
    for (std::int64_t e = t.thread() * kAtOnce; e < half; e += t.num_threads() * kAtOnce) {
      float low[kAtOnce], high[kAtOnce];
      load<kAtOnce>(row + C + e, low);
      load<kAtOnce>(row + C + half + e, high);
      turn_pairs<kAtOnce>(cos_PR2 + table + e, sin_PR2 + table + e, low, high);
      store<kAtOnce>(to + C + e, low);
      store<kAtOnce>(to + C + half + e, high);
      if (page == nullptr) continue;
      store<kAtOnce>(page + C + e, low);
      store<kAtOnce>(page + C + half + e, high);
    }
  }

  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void norm(Thread& t, const A* x, const float* weight, std::int64_t count, A* to, A* also) const {
    const float squares = sum_of_squares<kAtOnce>(t, x, count, reinterpret_cast<float*>(t.shared())),
                scale = 1.0f / sqrtf(squares / static_cast<float>(count) + eps);
    for (std::int64_t i = t.thread() * kAtOnce; i < count; i += t.num_threads() * kAtOnce) {
      float values[kAtOnce], weights[kAtOnce];
      load<kAtOnce>(x + i, values);
      load<kAtOnce>(weight + i, weights);
      MAGISTER_UNROLL
      for (int j = 0; j < kAtOnce; ++j) values[j] = weights[j] * (values[j] * scale);
      store<kAtOnce>(to + i, values);
      if (also != nullptr) store<kAtOnce>(also + i, values);
    }
  }
};

// A warp copies numbers, or writes zeros where `from` is nullptr.
template <int kAtOnce, typename A, typename Thread>
MAGISTER_DEVICE void copy_numbers(Thread& t, const A* from, A* to, std::int64_t count) {
  for (std::int64_t e = t.lane() * kAtOnce; e < count; e += kWarp * kAtOnce) {
    float values[kAtOnce] = {};
    if (from != nullptr) load<kAtOnce>(from + e, values);
    store<kAtOnce>(to + e, values);
  }
}

// One warp per head of a token: rotates the last R numbers of its query and writes them to numbers [at, at + R) of a
// row of X numbers. `whole`: at is N, and the row also gets the first N numbers and zeros after E.
template <typename A>
struct TurnQueries {
  static constexpr const char* kName = "turn_queries";
  static constexpr int kMaxThreads = 128;
  const A* q_THE;  // `stride` numbers between two tokens
  A* out_THX;      // contiguous
  const float *cos_PR2, *sin_PR2;
  const std::int32_t* rows_T;
  std::int64_t stride, H, N, R, X, at;
  bool whole;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .blocks_y = static_cast<unsigned>((H + 3) / 4), .threads = 128};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    if (t.block_y() * 4 + t.warp() >= H) return;
    at_once((stride | N | R / 2 | X | at) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t token = t.block_x(), head = t.block_y() * 4 + t.warp(), half = R / 2;
    const A* from = q_THE + token * stride + head * (N + R);
    A* const to = out_THX + (token * H + head) * X;
    const std::int64_t table = rows_T[token] * half;
    for (std::int64_t e = t.lane() * kAtOnce; e < half; e += kWarp * kAtOnce) {
      float low[kAtOnce], high[kAtOnce];
      load<kAtOnce>(from + N + e, low);
      load<kAtOnce>(from + N + half + e, high);
      turn_pairs<kAtOnce>(cos_PR2 + table + e, sin_PR2 + table + e, low, high);
      store<kAtOnce>(to + at + e, low);
      store<kAtOnce>(to + at + half + e, high);
    }
    if (!whole) return;
    copy_numbers<kAtOnce>(t, from, to, N);
    copy_numbers<kAtOnce>(t, static_cast<const A*>(nullptr), to + N + R, X - N - R);
  }
};

// One warp per head of a token: keys and values that are products of the latent, beside the rotated key that all heads
// share, in rows of X numbers filled with zeros.
template <typename A>
struct PlaceHeads {
  static constexpr const char* kName = "place_heads";
  static constexpr int kMaxThreads = 128;
  const A* up_TU;      // [T, H (N + V)]
  const A* tokens_TW;  // as in ShortVectors
  A *keys_THX, *values_THX;
  std::int64_t H, N, V, C, R, X;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .blocks_y = static_cast<unsigned>((H + 3) / 4), .threads = 128};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    if (t.block_y() * 4 + t.warp() >= H) return;
    at_once((N | V | C | R | X) % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t row = t.block_x() * H + t.block_y() * 4 + t.warp();
    const A* up = up_TU + row * (N + V);
    A *key = keys_THX + row * X, *value = values_THX + row * X;
    const A* const nothing = nullptr;
    copy_numbers<kAtOnce>(t, up, key, N);
    copy_numbers<kAtOnce>(t, tokens_TW + t.block_x() * (C + R) + C, key + N, R);
    copy_numbers<kAtOnce>(t, nothing, key + N + R, X - N - R);
    copy_numbers<kAtOnce>(t, up + N, value, V);
    copy_numbers<kAtOnce>(t, nothing, value + V, X - V);
  }
};

}  // namespace magister::gpu
