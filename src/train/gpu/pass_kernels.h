// The operations between the products of a training pass: the rotation of heads, both ways, and the gate of an MLP,
// forward and backward. Each reads its inputs once and writes its outputs once.
// Legend: T tokens, H query heads, K KV heads, E numbers of a head, R those that rotate, F columns of an MLP, X and Out
// types (Bf16 or float).
#pragma once

#include "magister/device/numbers_at_once.h"
#include "magister/model/activation.h"

namespace magister::gpu {

// Heads of a token one after the other, contiguous within a token.
template <typename Number>
struct HeadsOf {
  Number* at;
  std::int64_t stride;  // from token to token
};

// Rotates the first R numbers of q's and k's heads by the token's angles, times `direction` (1, or -1 for the way
// back), and copies the others. Values are copied if there are any. Pairs are in halves or, interleaved, side by side.
// Output may be input, number by number.
template <typename X, typename Out>
struct TurnHeads {
  static constexpr const char* kName = "turn_heads";
  static constexpr int kMaxThreads = 256;
  HeadsOf<const X> q, k, v;  // v.at: nullptr: none
  HeadsOf<Out> to_q, to_k, to_v;
  const float* cos_TR2;  // nullptr: R is 0
  const float* sin_TR2;
  std::int64_t T, H, K, E, R;
  bool interleaved, in_place;
  bool eight;  // E and R / 2 are multiples of eight, and every head begins at one
  float direction;

  // A block per token.
  LaunchShape shape() const {
    const std::int64_t items = (H + 2 * K) * E / (eight ? 16 : 2);
    return {.blocks_x = static_cast<unsigned>(T),
            .threads = static_cast<unsigned>(items > 128  ? 256
                                             : items > 64 ? 128
                                             : items > 32 ? 64
                                                          : 32)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    eight ? run<8>(t) : run<1>(t);
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t token = t.block_x();
    const int half = static_cast<int>(R / 2), pieces = half / kAtOnce, turning = static_cast<int>(H + K) * pieces;
    for (int item = t.thread(); item < turning; item += t.num_threads()) {
      const int head = item / pieces, e = item % pieces * kAtOnce;
      turn<kAtOnce>(token, head, e, token * half + e);
    }
    if (!in_place) {
      const int rest = static_cast<int>(E - R) / kAtOnce, copied = static_cast<int>(H + K) * rest;
      for (int item = t.thread(); item < copied; item += t.num_threads()) {
        const std::int64_t head = item / rest, e = R + item % rest * kAtOnce;
        copy<kAtOnce>(from(token, head) + e, to(token, head) + e);
      }
    }
    if (v.at == nullptr) return;
    const int values = static_cast<int>(K * E) / kAtOnce;
    for (int item = t.thread(); item < values; item += t.num_threads())
      copy<kAtOnce>(v.at + token * v.stride + item * kAtOnce, to_v.at + token * to_v.stride + item * kAtOnce);
  }

  MAGISTER_DEVICE const X* from(std::int64_t token, std::int64_t head) const {
    return head < H ? q.at + token * q.stride + head * E : k.at + token * k.stride + (head - H) * E;
  }
  MAGISTER_DEVICE Out* to(std::int64_t token, std::int64_t head) const {
    return head < H ? to_q.at + token * to_q.stride + head * E : to_k.at + token * to_k.stride + (head - H) * E;
  }
  template <int kAtOnce>
  MAGISTER_DEVICE void copy(const X* x, Out* out) const {
    float values[kAtOnce];
    load<kAtOnce>(x, values);
    store<kAtOnce>(out, values);
  }

  // Pairs [e, e + kAtOnce) of a head.
  template <int kAtOnce>
  MAGISTER_DEVICE void turn(std::int64_t token, std::int64_t head, std::int64_t e, std::int64_t angle) const {
    const X* const x = from(token, head);
    Out* const out = to(token, head);
    const std::int64_t first = interleaved ? 2 * e : e, second = interleaved ? 2 * e + kAtOnce : e + R / 2;
    float a[kAtOnce], b[kAtOnce], cos[kAtOnce], sin[kAtOnce];
    load<kAtOnce>(x + first, a);
    load<kAtOnce>(x + second, b);
    load<kAtOnce>(cos_TR2 + angle, cos);
    load<kAtOnce>(sin_TR2 + angle, sin);
    if constexpr (kAtOnce == 8) {
      if (interleaved) {  // neighbours within both eights
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          turn_pair(a[2 * i], a[2 * i + 1], cos[i], sin[i]);
          turn_pair(b[2 * i], b[2 * i + 1], cos[4 + i], sin[4 + i]);
        }
      } else {
        MAGISTER_UNROLL
        for (int i = 0; i < 8; ++i) turn_pair(a[i], b[i], cos[i], sin[i]);
      }
    } else {
      turn_pair(a[0], b[0], cos[0], sin[0]);
    }
    store<kAtOnce>(out + first, a);
    store<kAtOnce>(out + second, b);
  }
  MAGISTER_DEVICE void turn_pair(float& a, float& b, float cos, float sin) const {
    const float turned = b * cos + a * (sin * direction);
    a = a * cos - b * (sin * direction);
    b = turned;
  }
};

// act(x) and its derivative.
struct Activated {
  float value, slope;
};
MAGISTER_DEVICE Activated activated_with_slope(Activation activation, float x) {
  if (activation == Activation::kSilu) {
    const float sigmoid = 1.0f / (1.0f + expf(-x)), value = x * sigmoid;
    return {value, sigmoid + value * (1.0f - sigmoid)};
  }
  if (activation == Activation::kGelu) {
    constexpr float kRootHalf = 0.70710678118654752f, kDensity = 0.39894228040143268f;  // 1 / sqrt(2 pi)
    const float share = 0.5f * (1.0f + erff(x * kRootHalf));
    return {x * share, share + x * kDensity * expf(-0.5f * x * x)};
  }
  if (activation == Activation::kRelu || activation == Activation::kRelu2) {
    const float positive = x > 0.0f ? x : 0.0f;
    if (activation == Activation::kRelu2) return {positive * positive, 2.0f * positive};
    return {positive, x > 0.0f ? 1.0f : 0.0f};
  }
  const float z = kGeluTanhScale * (x + kGeluTanhCubic * x * x * x), sigmoid = 1.0f / (1.0f + expf(-z));
  const float slope = kGeluTanhScale * (1.0f + 3.0f * kGeluTanhCubic * x * x);
  return {x * sigmoid, sigmoid + x * sigmoid * (1.0f - sigmoid) * slope};
}

// Rows of F numbers; each tensor has its own stride from row to row.
struct GateRows {
  std::int64_t T, F, gate_stride, up_stride;
  bool eight;  // F is a multiple of eight, and every row begins at one

  static constexpr std::int64_t kThreads = 256;
  LaunchShape shape() const {
    const std::int64_t columns = kThreads * (eight ? 8 : 1);
    const std::int64_t items = (F + (eight ? 7 : 0)) / (eight ? 8 : 1);
    return {.blocks_x = static_cast<unsigned>(T),
            .blocks_y = static_cast<unsigned>((F + columns - 1) / columns),
            .threads = static_cast<unsigned>(items >= kThreads ? kThreads : (items + kWarp - 1) / kWarp * kWarp)};
  }
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE std::int64_t first(Thread& t) const {
    return (t.block_y() * kThreads + t.thread()) * kAtOnce;
  }
};

// out = act(gate) * up.
template <typename X>
struct TrainGate {
  static constexpr const char* kName = "train_gate";
  static constexpr int kMaxThreads = GateRows::kThreads;
  const X* gate;
  const X* up;
  X* out_TF;
  GateRows rows;
  Activation activation;

  LaunchShape shape() const { return rows.shape(); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    rows.eight ? run<8>(t) : run<1>(t);
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t f = rows.template first<kAtOnce>(t), token = t.block_x();
    if (f >= rows.F) return;
    float gates[kAtOnce], ups[kAtOnce];
    load<kAtOnce>(gate + token * rows.gate_stride + f, gates);
    load<kAtOnce>(up + token * rows.up_stride + f, ups);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) gates[i] = activated_with_slope(activation, gates[i]).value * ups[i];
    store<kAtOnce>(out_TF + token * rows.F + f, gates);
  }
};

// The gradients of gate and up side by side: [T, 2F], the gate's first.
template <typename X>
struct TrainGateBack {
  static constexpr const char* kName = "train_gate_back";
  static constexpr int kMaxThreads = GateRows::kThreads;
  const X* gradient_TF;
  const X* gate;
  const X* up;
  X* of_both_TF2;
  GateRows rows;
  Activation activation;

  LaunchShape shape() const { return rows.shape(); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    rows.eight ? run<8>(t) : run<1>(t);
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t f = rows.template first<kAtOnce>(t), token = t.block_x();
    if (f >= rows.F) return;
    float gradients[kAtOnce], gates[kAtOnce], ups[kAtOnce];
    load<kAtOnce>(gradient_TF + token * rows.F + f, gradients);
    load<kAtOnce>(gate + token * rows.gate_stride + f, gates);
    load<kAtOnce>(up + token * rows.up_stride + f, ups);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const Activated active = activated_with_slope(activation, gates[i]);
      gates[i] = gradients[i] * ups[i] * active.slope;
      ups[i] = gradients[i] * active.value;
    }
    store<kAtOnce>(of_both_TF2 + token * 2 * rows.F + f, gates);
    store<kAtOnce>(of_both_TF2 + token * 2 * rows.F + rows.F + f, ups);
  }
};

}  // namespace magister::gpu
