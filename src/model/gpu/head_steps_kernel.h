// RotateHeads for layers that do more with the heads of q, k and v: norms after the rotation (HunYuan, Llama 4), layer
// norms with biases (Persimmon), a factor of queries by their position (Ministral 3), a norm of values (Gemma 4) and a
// factor of values (MiMo-V2). Nothing is rounded between these steps, as on a CPU. It is a kernel of its own, so that
// other layers pay nothing for it.
// Sources: see the fields of ModelConfig with these names.
// Legend: T packed tokens, E head_dim, R rotated dimensions, A the activations' type (Bf16 or float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

struct HeadSteps {
  const float* q_bias_E = nullptr;  // the norms of q and k are layer norms with these biases; or nullptr
  const float* k_bias_E = nullptr;
  bool norms_after = false;   // the norms follow the rotation; RMS norms only
  bool norms_values = false;  // each head of v is divided by its root mean square
  float value_scale = 1.0f;
  // If query_beta > 0: queries are multiplied by 1 + query_beta ln(1 + floor((position + query_shift) /
  // query_positions)) at the end.
  float query_beta = 0.0f;
  std::int64_t query_positions = 1, query_shift = 0;
  const std::int32_t* positions_T = nullptr;

  bool any() const {
    return q_bias_E != nullptr || norms_after || norms_values || value_scale != 1.0f || query_beta > 0;
  }
};

template <typename A>
struct RotateHeadsInSteps {
  static constexpr const char* kName = "rotate_heads_in_steps";
  static constexpr int kMaxThreads = RotateHeads<A>::kMaxThreads;
  RotateHeads<A> heads;
  HeadSteps steps;

  LaunchShape shape(std::int64_t T) const { return heads.shape(T); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x(), head = t.block_y() * 4 + t.warp();
    if (head >= heads.H + 2 * heads.K) return;
    A* x = heads.numbers_of(token, head);
    if (heads.is_value(head)) {
      if (steps.norms_values || steps.value_scale != 1.0f) scale_value(t, x);
    } else {
      heads.in_twos() ? turn<2>(t, x, token, head) : turn<1>(t, x, token, head);
    }
    heads.place(t, x, token, head);
  }

 private:
  // A norm on a head: out = weight * ((x - mean) * scale) + bias.
  struct Norm {
    const float* weight_E;  // nullptr: no norm
    const float* bias_E;    // or nullptr
    float mean, scale;

    MAGISTER_DEVICE float of(float x, std::int64_t e) const {
      if (weight_E == nullptr) return x;
      const float out = weight_E[e] * ((x - mean) * scale);
      return bias_E == nullptr ? out : out + bias_E[e];
    }
  };

  MAGISTER_DEVICE float scale_of(float squares, std::int64_t count) const {
    return 1.0f / sqrtf(squares / static_cast<float>(count) + heads.eps);
  }

  template <typename Thread>
  MAGISTER_DEVICE Norm norm_before(Thread& t, const A* x, const float* weight_E, const float* bias_E) const {
    if (weight_E == nullptr) return {nullptr, nullptr, 0.0f, 1.0f};
    const std::int64_t E = heads.E;
    float mean = 0, squares = 0;
    if (bias_E != nullptr) {
      for (std::int64_t e = t.lane(); e < E; e += kWarp) mean += to_float(x[e]);
      mean = warp_sum(t, mean) / static_cast<float>(E);
    }
    for (std::int64_t e = t.lane(); e < E; e += kWarp) {
      const float centred = to_float(x[e]) - mean;
      squares += centred * centred;
    }
    return {weight_E, bias_E, mean, scale_of(warp_sum(t, squares), E)};
  }

  // Loads kAtOnce pairs of the head, normed and rotated.
  template <int kAtOnce>
  MAGISTER_DEVICE void load_turned(const A* x, std::int64_t row, std::int64_t e, const Norm& before,
                                   float (&low)[kAtOnce], float (&high)[kAtOnce]) const {
    const std::int64_t half = heads.R / 2;
    float cos[kAtOnce], sin[kAtOnce];
    load<kAtOnce>(x + e, low);
    load<kAtOnce>(x + e + half, high);
    load<kAtOnce>(heads.cos_PR2 + row + e, cos);
    load<kAtOnce>(heads.sin_PR2 + row + e, sin);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      low[i] = before.of(low[i], e + i);
      high[i] = before.of(high[i], e + half + i);
      const float turned = high[i] * cos[i] + low[i] * sin[i];
      low[i] = low[i] * cos[i] - high[i] * sin[i];
      high[i] = turned;
    }
  }

  // 1 / rms of the rotated head. The rotation is computed again afterwards, because rounding it between the two would
  // lose bits.
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE float scale_after(Thread& t, const A* x, std::int64_t row) const {
    const Norm none{nullptr, nullptr, 0.0f, 1.0f};
    float squares = 0;
    for (std::int64_t e = t.lane() * kAtOnce; e < heads.R / 2; e += kWarp * kAtOnce) {
      float low[kAtOnce], high[kAtOnce];
      load_turned<kAtOnce>(x, row, e, none, low, high);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) squares += low[i] * low[i] + high[i] * high[i];
    }
    for (std::int64_t e = heads.R + t.lane(); e < heads.E; e += kWarp) squares += to_float(x[e]) * to_float(x[e]);
    return scale_of(warp_sum(t, squares), heads.E);
  }

  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void turn(Thread& t, A* x, std::int64_t token, std::int64_t head) const {
    const std::int64_t half = heads.R / 2, row = heads.rows_T[token] * half;
    const bool is_key = heads.is_key(head);
    const float* weight_E = is_key ? heads.k_norm_E : heads.q_norm_E;
    const Norm before =
        norm_before(t, x, steps.norms_after ? nullptr : weight_E, is_key ? steps.k_bias_E : steps.q_bias_E);
    Norm after{nullptr, nullptr, 0.0f, 1.0f};
    if (steps.norms_after && weight_E != nullptr) after = {weight_E, nullptr, 0.0f, scale_after<kAtOnce>(t, x, row)};
    const float factor = is_key ? 1.0f : query_factor(token);
    for (std::int64_t e = t.lane() * kAtOnce; e < half; e += kWarp * kAtOnce) {
      float low[kAtOnce], high[kAtOnce];
      load_turned<kAtOnce>(x, row, e, before, low, high);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        low[i] = after.of(low[i], e + i) * factor;
        high[i] = after.of(high[i], e + half + i) * factor;
      }
      store<kAtOnce>(x + e, low);
      store<kAtOnce>(x + e + half, high);
    }
    for (std::int64_t e = heads.R + t.lane(); e < heads.E; e += kWarp)
      x[e] = stored<A>(after.of(before.of(to_float(x[e]), e), e) * factor);
  }

  MAGISTER_DEVICE float query_factor(std::int64_t token) const {
    if (steps.query_beta <= 0) return 1.0f;
    const std::int64_t times = (steps.positions_T[token] + steps.query_shift) / steps.query_positions;
    return 1.0f + steps.query_beta * logf(1.0f + static_cast<float>(times));
  }

  template <typename Thread>
  MAGISTER_DEVICE void scale_value(Thread& t, A* x) const {
    const std::int64_t V = heads.value_dim();
    float scale = 1.0f;
    if (steps.norms_values) {
      float squares = 0;
      for (std::int64_t v = t.lane(); v < V; v += kWarp) squares += to_float(x[v]) * to_float(x[v]);
      scale = scale_of(warp_sum(t, squares), V);
    }
    for (std::int64_t v = t.lane(); v < V; v += kWarp) x[v] = stored<A>(to_float(x[v]) * scale * steps.value_scale);
  }
};

}  // namespace magister::gpu
