// Kernels between the products of a layer. Each reads its input once and writes its output once.
// Legend: T packed tokens, D hidden, H query heads and K KV heads of this shard, E head_dim, F MLP columns of this
// shard, P pages, A the activations' type (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"
#include "magister/model/activation.h"
#include "model/gpu/kv_code_kernels.h"

namespace magister::gpu {

// Adds delta (if there is one) to the residual row of this block and multiplies the sum by `factor`, keeps the row in
// shared memory as row_D, and returns 1 / rms of it. scratch: 32 numbers of shared memory.
template <int kAtOnce, typename Delta, typename Thread>
MAGISTER_DEVICE float add_and_norm(Thread& t, float* hidden_TD, const Delta* delta_TD, float factor, std::int64_t D,
                                   float eps, float* scratch, float* row_D) {
  const std::int64_t first = t.block_x() * D;
  float squares = 0;
  for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
    float values[kAtOnce];
    load<kAtOnce>(hidden_TD + first + d, values);
    if (delta_TD != nullptr) {
      float delta[kAtOnce];
      load<kAtOnce>(delta_TD + first + d, delta);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] = (values[i] + delta[i]) * factor;
      store<kAtOnce>(hidden_TD + first + d, values);
    }
    if constexpr (kAtOnce == 8) {
      keep_8(row_D + d, values);
    } else {
      row_D[d] = values[0];
    }
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) squares += values[i] * values[i];
  }
  const float mean = block_sum(t, squares, scratch) / static_cast<float>(D);
  return 1.0f / sqrtf(mean + eps);
}

// Numbers of that row, normed and multiplied by the norm's weight if there is one.
template <int kAtOnce>
MAGISTER_DEVICE void normed(const float* row_D, const float* weight_D, std::int64_t d, float scale,
                            float (&values)[kAtOnce]) {
  load<kAtOnce>(row_D + d, values);
  if (weight_D == nullptr) return;
  float weights[kAtOnce];
  load<kAtOnce>(weight_D + d, weights);
  MAGISTER_UNROLL
  for (int i = 0; i < kAtOnce; ++i) values[i] = weights[i] * (values[i] * scale);
}

// hidden = (hidden + delta) * factor (if there is a delta), then out = weight * hidden / rms(hidden): residual sum and
// norm in one pass. Without a weight, out = hidden. kCentred: a layer norm, which subtracts the mean of the row first
// and adds a bias if there is one. Delta: A, or float for a sum over shards. out may be hidden itself.
template <typename A, bool kCentred, typename Delta = A>
struct AddNorm {
  static constexpr const char* kName = kCentred ? "add_layer_norm" : "add_rms_norm";
  static constexpr int kMaxThreads = 256;
  float* hidden_TD;       // the residual stream, f32
  const Delta* delta_TD;  // a product's output, or nullptr
  const float* weight_D;  // may be nullptr only if kCentred is false
  A* out_TD;
  std::int64_t D;
  float eps;
  const float* bias_D = nullptr;  // only if kCentred
  float factor = 1.0f;

  // One block per token. The row of the residual stream stays in shared memory between the passes over it.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .threads = 256,
            .shared_bytes = (32 + static_cast<std::size_t>(D)) * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t, scratch, scratch + 32); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t, float* scratch, float* row_D) const {
    float scale = add_and_norm<kAtOnce>(t, hidden_TD, delta_TD, factor, D, eps, scratch, row_D);
    if constexpr (kCentred) scale = centre<kAtOnce>(t, scratch, row_D);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float values[kAtOnce];
      normed<kAtOnce>(row_D, weight_D, d, scale, values);
      if constexpr (kCentred) add_bias<kAtOnce>(d, values);
      store<kAtOnce>(out_TD + t.block_x() * D + d, values);
    }
  }

  template <int kAtOnce>
  MAGISTER_DEVICE void add_bias(std::int64_t d, float (&values)[kAtOnce]) const {
    if (bias_D == nullptr) return;
    float bias[kAtOnce];
    load<kAtOnce>(bias_D + d, bias);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) values[i] += bias[i];
  }

  // Subtracts the mean of the row, and returns 1 / its standard deviation. Each thread processes only its own numbers
  // of the row.
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE float centre(Thread& t, float* scratch, float* row_D) const {
    float sum = 0, squares = 0;
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum += row_D[d + i];
    }
    const float mean = block_sum(t, sum, scratch) / static_cast<float>(D);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        row_D[d + i] -= mean;
        squares += row_D[d + i] * row_D[d + i];
      }
    }
    return 1.0f / sqrtf(block_sum(t, squares, scratch) / static_cast<float>(D) + eps);
  }
};
template <typename A, typename Delta = A>
using AddRmsNorm = AddNorm<A, false, Delta>;
template <typename A, typename Delta = A>
using AddLayerNorm = AddNorm<A, true, Delta>;

// x = weight * x / rms(x) in place: the norm on a block's output before the residual sum, or a norm over all heads of q
// or k.
template <typename A>
struct NormRows {
  static constexpr const char* kName = "norm_rows";
  static constexpr int kMaxThreads = 256;
  A* x_TD;
  const float* weight_D;
  std::int64_t D;
  float eps;
  std::int64_t stride = 0;  // numbers between two rows; 0: D
  bool eight = true;        // if D is a multiple of eight, rows also begin at multiples of eight numbers

  // One block per token.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    at_once(D % 8 == 0 && eight, [&](auto n) { run<n.kCount>(t, scratch); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t, float* scratch) const {
    A* row_D = x_TD + t.block_x() * (stride > 0 ? stride : D);
    const float squares = sum_of_squares<kAtOnce>(t, row_D, D, scratch),
                scale = 1.0f / sqrtf(squares / static_cast<float>(D) + eps);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float values[kAtOnce], weights[kAtOnce];
      load<kAtOnce>(row_D + d, values);
      load<kAtOnce>(weight_D + d, weights);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] = weights[i] * (values[i] * scale);
      store<kAtOnce>(row_D + d, values);
    }
  }
};

// Rotates a pair. The roundings are written out, so that every kernel that rotates gives the same bits.
MAGISTER_DEVICE void turn(float& low, float& high, float cos, float sin) {
  const float turned = fmaf(high, cos, low * sin);
  low = fmaf(low, cos, -(high * sin));
  high = turned;
}

// Rotates the first R dimensions of the heads of q and k in place, after their norms if the model has them (Qwen3), and
// writes keys and values into the pages of a cache if there is one. Rotary pairs are stored as halves: (x[e], x[e +
// R/2]).
template <typename A>
struct RotateHeads {
  static constexpr const char* kName = "rotate_heads";
  static constexpr int kMaxThreads = 128;
  A* qkv_TQ;             // [T, (H + K) E + K V]
  const float* cos_PR2;  // rotary tables, and each token's row in them
  const float* sin_PR2;
  const std::int32_t* rows_T;
  const float* q_norm_E;  // or nullptr
  const float* k_norm_E;
  // [P, K, 48, E] and [P, K, 48, V], and the slot of every token (page * 48 + slot in the page); nullptr without a
  // cache.
  A* key_pages;
  A* value_pages;
  const std::int64_t* slots_T;
  std::int64_t H, K, E, R;  // R even, 0 to E; K is 0 in a layer without keys of its own
  float eps;
  std::int64_t V = 0;  // numbers of a head's values; 0: E
  bool codes = false;  // the pages are records of codes (kv_code_kernels.h); for Bf16, with E and V multiples of 8

  static constexpr std::int64_t kSlots = kPageSlots;

  // One warp per head of a token.
  LaunchShape shape(std::int64_t T) const {
    return {
        .blocks_x = static_cast<unsigned>(T), .blocks_y = static_cast<unsigned>((H + 2 * K + 3) / 4), .threads = 128};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x(), head = t.block_y() * 4 + t.warp();
    if (head >= H + 2 * K) return;
    A* x = numbers_of(token, head);
    const float* norm_E = is_key(head) ? k_norm_E : q_norm_E;
    if (!is_value(head)) in_twos() ? rotate<2>(t, x, token, norm_E) : rotate<1>(t, x, token, norm_E);
    place(t, x, token, head);
  }

  MAGISTER_DEVICE bool is_value(std::int64_t head) const { return head >= H + K; }
  MAGISTER_DEVICE bool is_key(std::int64_t head) const { return head >= H && !is_value(head); }
  MAGISTER_DEVICE std::int64_t value_dim() const { return V > 0 ? V : E; }
  MAGISTER_DEVICE bool in_twos() const { return E % 4 == 0 && R % 4 == 0 && V % 2 == 0; }
  MAGISTER_DEVICE A* numbers_of(std::int64_t token, std::int64_t head) const {
    const std::int64_t keys = (H + K) * E, row = token * (keys + K * value_dim());
    return qkv_TQ + row + (is_value(head) ? keys + (head - H - K) * value_dim() : head * E);
  }
  // Writes a finished head of k or v into its page; codes also round x.
  template <typename Thread>
  MAGISTER_DEVICE void place(Thread& t, A* x, std::int64_t token, std::int64_t head) const {
    if (slots_T == nullptr || head < H) return;
    t.sync_warp();  // other lanes have stored the numbers that this lane reads now
    const bool is_value = this->is_value(head);
    const std::int64_t slot = slots_T[token], kv_head = head - (is_value ? H + K : H),
                       size = is_value ? value_dim() : E;
    if constexpr (sizeof(A) == sizeof(Bf16)) {
      if (codes) {
        auto* records = reinterpret_cast<std::uint8_t*>(is_value ? value_pages : key_pages);
        const std::int64_t record = (slot / kSlots * K + kv_head) * CodeVector::record_bytes(size);
        return place_codes(t, x, size, records + record, slot % kSlots);
      }
    }
    A* to = (is_value ? value_pages : key_pages) + ((slot / kSlots * K + kv_head) * kSlots + slot % kSlots) * size;
    if (E % 8 == 0 && V % 8 == 0) {
      for (std::int64_t e = t.lane() * 8; e < size; e += kWarp * 8) {
        float values[8];
        load_8(x + e, values);
        store_8(to + e, values);
      }
    } else {
      for (std::int64_t e = t.lane(); e < size; e += kWarp) to[e] = x[e];
    }
  }

 private:
  // Processes kAtOnce neighbours at a time; the halves of the head must be multiples of that.
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void rotate(Thread& t, A* x, std::int64_t token, const float* norm_E) const {
    const std::int64_t half = R / 2, row = rows_T[token] * half;
    float scale = 1.0f;
    if (norm_E != nullptr) {
      float squares = 0;
      for (std::int64_t e = t.lane(); e < E; e += kWarp) squares += to_float(x[e]) * to_float(x[e]);
      scale = 1.0f / sqrtf(warp_sum(t, squares) / static_cast<float>(E) + eps);
    }
    for (std::int64_t e = t.lane() * kAtOnce; e < half; e += kWarp * kAtOnce) {
      float low[kAtOnce], high[kAtOnce], cos[kAtOnce], sin[kAtOnce];
      load<kAtOnce>(x + e, low);
      load<kAtOnce>(x + e + half, high);
      load<kAtOnce>(cos_PR2 + row + e, cos);
      load<kAtOnce>(sin_PR2 + row + e, sin);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (norm_E != nullptr) {
          low[i] = norm_E[e + i] * (low[i] * scale);
          high[i] = norm_E[e + half + i] * (high[i] * scale);
        }
        turn(low[i], high[i], cos[i], sin[i]);
      }
      store<kAtOnce>(x + e, low);
      store<kAtOnce>(x + e + half, high);
    }
    if (norm_E == nullptr) return;
    for (std::int64_t e = R + t.lane(); e < E; e += kWarp) x[e] = stored<A>(norm_E[e] * (to_float(x[e]) * scale));
  }
};

MAGISTER_DEVICE float gated(Activation activation, float gate, float up) {
  const float z =
      activation == Activation::kSilu ? gate : kGeluTanhScale * (gate + kGeluTanhCubic * gate * gate * gate);
  return divide_roughly(gate, 1.0f + expf(-z)) * up;
}

// The columns of kernels between an MLP's products: eight for each thread.
struct MlpColumns {
  static constexpr std::int64_t kThreads = 256, kOfBlock = 8 * kThreads;
  static LaunchShape shape(std::int64_t T, std::int64_t F) {
    return {.blocks_x = static_cast<unsigned>(T),
            .blocks_y = static_cast<unsigned>((F + kOfBlock - 1) / kOfBlock),
            .threads = static_cast<unsigned>(kThreads)};
  }
  // out_F[f] = function(gate_F[f], up_F[f]) for the columns of this thread.
  template <typename A, typename Thread, typename Function>
  MAGISTER_DEVICE static void run(Thread& t, const A* gate_F, const A* up_F, A* out_F, std::int64_t F,
                                  const Function& function) {
    const std::int64_t first = t.block_y() * kOfBlock + t.thread() * 8;
    if (F % 8 != 0) {
      for (std::int64_t f = first; f < first + 8 && f < F; ++f)
        out_F[f] = stored<A>(function(to_float(gate_F[f]), to_float(up_F[f])));
      return;
    }
    if (first >= F) return;
    float gate[8], up[8];
    load_8(gate_F + first, gate);
    load_8(up_F + first, up);
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) gate[i] = function(gate[i], up[i]);
    store_8(out_F + first, gate);
  }
};

// out = act(gate) * up.
template <typename A>
struct GateMultiply {
  static constexpr const char* kName = "gate_multiply";
  static constexpr int kMaxThreads = 256;
  const A* gate_up_TF2;  // [T, 2F], gate first
  A* out_TF;
  std::int64_t F;
  Activation activation;

  LaunchShape shape(std::int64_t T) const { return MlpColumns::shape(T, F); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const A* gates = gate_up_TF2 + t.block_x() * 2 * F;
    MlpColumns::run(t, gates, gates + F, out_TF + t.block_x() * F, F,
                    [&](float gate, float up) { return gated(activation, gate, up); });
  }
};

}  // namespace magister::gpu
