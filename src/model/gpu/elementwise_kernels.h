// Kernels between the products of a layer: each reads its input once and writes its output once.
// Legend: T packed tokens, D hidden, H query heads and K KV heads of this shard, E head_dim, F MLP columns of this shard,
// P pages, A the activations' type (Bf16 or float).
#pragma once

#include "magister/model/gpu/device_code.h"

namespace magister::gpu {

// Rows of the embedding table; zero for ids that another shard holds.
template <typename A>
struct EmbedRows {
  static constexpr const char* kName = "embed_rows";
  static constexpr int kMaxThreads = 256;
  const A* table_vD;
  const std::int32_t* ids_T;
  float* hidden_TD;
  std::int64_t D, vocab_begin, vocab_end;

  // A block a token.
  LaunchShape shape(std::int64_t T) const { return {.blocks_x = static_cast<unsigned>(T), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x(), id = ids_T[row];
    const bool mine = id >= vocab_begin && id < vocab_end;
    for (std::int64_t d = t.thread(); d < D; d += t.num_threads()) {
      hidden_TD[row * D + d] = mine ? to_float(table_vD[(id - vocab_begin) * D + d]) : 0.0f;
    }
  }
};

// hidden += delta (where there is one), then out = weight * hidden / rms(hidden): residual and norm in one pass.
template <typename A>
struct AddRmsNorm {
  static constexpr const char* kName = "add_rms_norm";
  static constexpr int kMaxThreads = 256;
  float* hidden_TD;       // the residual stream, f32
  const A* delta_TD;      // a product's output, or nullptr
  const float* weight_D;
  A* out_TD;
  std::int64_t D;
  float eps;

  // A block a token; its row of the residual stream stays in shared memory between the two passes over it.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = (32 + static_cast<std::size_t>(D)) * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    float* row_D = scratch + 32;
    const std::int64_t first = t.block_x() * D;
    float squares = 0;
    for (std::int64_t d = t.thread(); d < D; d += t.num_threads()) {
      float value = hidden_TD[first + d];
      if (delta_TD != nullptr) {
        value += to_float(delta_TD[first + d]);
        hidden_TD[first + d] = value;
      }
      row_D[d] = value;
      squares += value * value;
    }
    const float mean = block_sum(t, squares, scratch) / static_cast<float>(D);
    const float scale = 1.0f / sqrtf(mean + eps);
    for (std::int64_t d = t.thread(); d < D; d += t.num_threads()) out_TD[first + d] = stored<A>(weight_D[d] * (row_D[d] * scale));
  }
};

// Rotates q and k in place after their own norms where the model has them (Qwen3), and puts keys and values into the pages of a
// cache where there is one. Rotary pairs stand in halves: (x[e], x[e + E/2]).
template <typename A>
struct RotateHeads {
  static constexpr const char* kName = "rotate_heads";
  static constexpr int kMaxThreads = 128;
  A* qkv_TQ;  // [T, (H + 2K) E]
  const float* cos_PE2;  // rotary tables, and each token's row in them
  const float* sin_PE2;
  const std::int32_t* rows_T;
  const float* q_norm_E;  // or nullptr
  const float* k_norm_E;
  // [P, K, 48, E] each, and the slot (page * 48 + place) of every token; nullptr without a cache.
  A* key_pages;
  A* value_pages;
  const std::int64_t* slots_T;
  std::int64_t H, K, E;
  float eps;

  static constexpr std::int64_t kSlots = 48;

  // A warp a head of a token.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .blocks_y = static_cast<unsigned>((H + 2 * K + 3) / 4), .threads = 128};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x(), head = t.block_y() * 4 + t.warp();
    if (head >= H + 2 * K) return;
    A* x = qkv_TQ + (token * (H + 2 * K) + head) * E;
    const bool is_value = head >= H + K, is_key = head >= H && !is_value;
    if (!is_value) rotate(t, x, token, is_key ? k_norm_E : q_norm_E);
    if (slots_T == nullptr || head < H) return;
    t.sync_warp();  // the row is stored by other lanes than those that read it now
    const std::int64_t slot = slots_T[token], kv_head = head - (is_value ? H + K : H);
    A* to = (is_value ? value_pages : key_pages) + ((slot / kSlots * K + kv_head) * kSlots + slot % kSlots) * E;
    for (std::int64_t e = t.lane(); e < E; e += kWarp) to[e] = x[e];
  }

 private:
  template <typename Thread>
  MAGISTER_DEVICE void rotate(Thread& t, A* x, std::int64_t token, const float* norm_E) const {
    const std::int64_t half = E / 2;
    float scale = 1.0f;
    if (norm_E != nullptr) {
      float squares = 0;
      for (std::int64_t e = t.lane(); e < E; e += kWarp) squares += to_float(x[e]) * to_float(x[e]);
      scale = 1.0f / sqrtf(warp_sum(t, squares) / static_cast<float>(E) + eps);
    }
    for (std::int64_t e = t.lane(); e < half; e += kWarp) {
      float low = to_float(x[e]), high = to_float(x[e + half]);
      if (norm_E != nullptr) {
        low = norm_E[e] * (low * scale);
        high = norm_E[e + half] * (high * scale);
      }
      const float cos = cos_PE2[rows_T[token] * half + e], sin = sin_PE2[rows_T[token] * half + e];
      x[e] = stored<A>(low * cos - high * sin);
      x[e + half] = stored<A>(high * cos + low * sin);
    }
  }
};

// silu(gate) * up.
template <typename A>
struct SiluMultiply {
  static constexpr const char* kName = "silu_multiply";
  static constexpr int kMaxThreads = 256;
  const A* gate_up_TF2;  // [T, 2F], gate first
  A* out_TF;
  std::int64_t F;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .blocks_y = static_cast<unsigned>((F + 2047) / 2048), .threads = 256};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x();
    const std::int64_t end = (t.block_y() + 1) * 2048 < F ? (t.block_y() + 1) * 2048 : F;
    for (std::int64_t f = t.block_y() * 2048 + t.thread(); f < end; f += t.num_threads()) {
      const float gate = to_float(gate_up_TF2[row * 2 * F + f]), up = to_float(gate_up_TF2[row * 2 * F + F + f]);
      out_TF[row * F + f] = stored<A>(gate / (1.0f + expf(-gate)) * up);
    }
  }
};

}  // namespace magister::gpu
