// Kernels on rows of attention before and after it: copies of keys that are values, too, and gates of the outputs.
// Legend: T packed tokens, H query heads of this shard, V numbers of a head's values, A the activations' type (Bf16 or
// float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Rows [T, given] -> [T, given + repeated]: the last `repeated` numbers of a row follow once more.
template <typename A>
struct RepeatKeys {
  static constexpr const char* kName = "repeat_keys";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int64_t kColumns = 8 * kMaxThreads;  // columns of a block
  const A* rows_TN;
  A* out_TQ;
  std::int64_t given, repeated;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .blocks_y = static_cast<unsigned>((given + repeated + kColumns - 1) / kColumns),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t width = given + repeated, first = t.block_y() * kColumns + t.thread() * 8;
    const A* from = rows_TN + t.block_x() * given;
    A* to = out_TQ + t.block_x() * width;
    if (given % 8 == 0 && repeated % 8 == 0) {
      if (first >= width) return;
      float values[8];
      load_8(from + (first < given ? first : first - repeated), values);
      store_8(to + first, values);
      return;
    }
    for (std::int64_t i = first; i < first + 8 && i < width; ++i) to[i] = from[i < given ? i : i - repeated];
  }
};

// out *= sigmoid(gate), or softplus(gate): a number of the gate for each output, or one for all outputs of a head.
template <typename A>
struct GateOutputs {
  static constexpr const char* kName = "gate_outputs";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int64_t kColumns = 8 * kMaxThreads;  // columns of a block
  const A* gate_TG;
  A* out_TA;                 // [T, H, V]
  std::int64_t width, each;  // H V; outputs for each number of the gate: 1 or V
  bool softplus;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .blocks_y = static_cast<unsigned>((width + kColumns - 1) / kColumns),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t first = t.block_y() * kColumns + t.thread() * 8;
    const A* gates = gate_TG + t.block_x() * (width / each);
    A* out = out_TA + t.block_x() * width;
    if (width % 8 != 0 || (each > 1 && each % 8 != 0)) {
      for (std::int64_t i = first; i < first + 8 && i < width; ++i)
        out[i] = stored<A>(to_float(out[i]) * factor(to_float(gates[i / each])));
      return;
    }
    if (first >= width) return;
    float values[8], factors[8];
    load_8(out + first, values);
    if (each == 1) {
      load_8(gates + first, factors);
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) values[i] *= factor(factors[i]);
    } else {
      const float one = factor(to_float(gates[first / each]));
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) values[i] *= one;
    }
    store_8(out + first, values);
  }

 private:
  MAGISTER_DEVICE float factor(float gate) const {
    if (softplus) return fmaxf(gate, 0.0f) + log1pf(expf(-fabsf(gate)));
    return divide_roughly(1.0f, 1.0f + expf(-gate));
  }
};

}  // namespace magister::gpu
