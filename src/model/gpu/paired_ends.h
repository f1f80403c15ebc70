// Ends of a RingProduct whose outputs belong together in pairs: an MLP's gate and up, and the two numbers of a head
// that are rotated together. A block takes eight neighbouring outputs and their eight partners, so it has both sums of
// each pair and does what a kernel of its own would do with them, with the same bits: one kernel less to wait for.
// Legend: M rows, N outputs, F MLP columns, H query heads and K KV heads of this shard, E head_dim.
#pragma once

#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

// GateMultiply behind the product of gate and up. N = 2F, F a multiple of 8.
struct GateEnds {
  static constexpr const char* kName = "gate_product";
  static constexpr bool kPaired = true;
  Bf16* out_MF;
  int F;
  Activation activation;

  MAGISTER_DEVICE int distance() const { return F; }
  // The first output of a block.
  MAGISTER_DEVICE int first_of(int block) const { return block * 8; }
  struct Held {};
  MAGISTER_DEVICE Held hold(int, int) const { return {}; }
  MAGISTER_DEVICE void store(int m, int n, Bf16 gate, Bf16 up, const Held&) const {
    out_MF[static_cast<std::int64_t>(m) * F + n] = to_bf16(gated(activation, to_float(gate), to_float(up)));
  }
};

// RotateHeads behind the product of q, k and v, where all dimensions of a head are rotated and nothing else is done
// with it: no norms, no codes; values are as wide as keys, and E is a multiple of 16. The rotated rows go to
// heads.qkv_TQ.
struct RotatedEnds {
  static constexpr const char* kName = "rotate_product";
  static constexpr bool kPaired = true;
  RotateHeads<Bf16> heads;

  MAGISTER_DEVICE int distance() const { return static_cast<int>(heads.E) / 2; }
  MAGISTER_DEVICE int first_of(int block) const {
    const int E = static_cast<int>(heads.E), blocks = E / 16;
    return block / blocks * E + block % blocks * 8;
  }
  // Numbers that a pair needs at the end, loaded before the products.
  struct Held {
    float cos = 1.0f, sin = 0.0f;
    std::int64_t slot = 0;
  };
  MAGISTER_DEVICE Held hold(int m, int n) const {
    const int E = static_cast<int>(heads.E), head = n / E;
    Held held;
    if (!heads.is_value(head)) {
      const std::int64_t at = heads.rows_T[m] * (heads.E / 2) + n % E;
      held.cos = heads.cos_PR2[at];
      held.sin = heads.sin_PR2[at];
    }
    if (heads.slots_T != nullptr && head >= heads.H) held.slot = heads.slots_T[m];
    return held;
  }
  MAGISTER_DEVICE void store(int m, int n, Bf16 low, Bf16 high, const Held& held) const {
    const int E = static_cast<int>(heads.E), head = n / E, e = n % E;
    if (!heads.is_value(head)) {
      float x = to_float(low), y = to_float(high);
      turn(x, y, held.cos, held.sin);
      low = to_bf16(x);
      high = to_bf16(y);
    }
    Bf16* const row = heads.numbers_of(m, head);
    row[e] = low;
    row[e + distance()] = high;
    if (heads.slots_T == nullptr || head < heads.H) return;
    const bool is_value = heads.is_value(head);
    const std::int64_t kv_head = head - (is_value ? heads.H + heads.K : heads.H),
                       place = (held.slot / kPageSlots * heads.K + kv_head) * kPageSlots + held.slot % kPageSlots;
    Bf16* const to = (is_value ? heads.value_pages : heads.key_pages) + place * heads.E;
    to[e] = low;
    to[e + distance()] = high;
  }
};

}  // namespace magister::gpu
