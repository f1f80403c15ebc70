// Converts rows of activations (or of weights) to 8-bit floats with one scale per row, for fp8 products: stored rows
// (QuantizeRows), or the output of a norm or gate in the same pass and with the same bits (NormQuantize, GateQuantize).
// Source: e4m3.h.
// Legend: M rows, K numbers per row; T packed tokens, D hidden, F MLP columns of this shard.
#pragma once

#include "model/gpu/e4m3.h"
#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

MAGISTER_DEVICE float e4m3_scale(float largest) { return largest > 0 ? largest / 448.0f : 1.0f; }

// Stores eight neighbouring numbers, 8 bytes.
MAGISTER_DEVICE void store_e4m3(std::uint8_t* to, const float (&values)[8], float scale) {
  float scaled[8];
  MAGISTER_UNROLL
  for (int i = 0; i < 8; ++i) scaled[i] = values[i] / scale;
  *reinterpret_cast<Words2*>(to) = e4m3_words(scaled);
}

// Rounds eight numbers to bf16, and returns the largest absolute value so far.
MAGISTER_DEVICE float rounded_and_largest(float (&values)[8], float largest) {
  MAGISTER_UNROLL
  for (int i = 0; i < 8; ++i) {
    values[i] = to_float(to_bf16(values[i]));
    largest = fmaxf(largest, fabsf(values[i]));
  }
  return largest;
}

// Writes the row of this block as codes, and its scale. largest: the largest absolute value of this thread's numbers.
// scratch: 32 numbers of shared memory.
template <typename Number, typename Thread>
MAGISTER_DEVICE void quantize_row(Thread& t, const Number* row, float largest, std::int64_t count, float* scratch,
                                  std::uint8_t* out_MK, float* scale_M) {
  const float scale = e4m3_scale(block_max(t, largest, scratch));
  if (t.thread() == 0) scale_M[t.block_x()] = scale;
  for (std::int64_t k = t.thread() * 8; k < count; k += t.num_threads() * 8) {
    float values[8];
    load_8(row + k, values);
    store_e4m3(out_MK + t.block_x() * count + k, values, scale);
  }
}

template <typename A>
struct QuantizeRows {
  static constexpr const char* kName = "quantize_rows";
  static constexpr int kMaxThreads = 256;
  const A* x_MK;
  std::uint8_t* out_MK;
  float* scale_M;  // x is approximately out * scale
  std::int64_t K;  // a multiple of 8

  LaunchShape shape(std::int64_t M) const {
    return {.blocks_x = static_cast<unsigned>(M), .threads = kMaxThreads, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const A* row = x_MK + t.block_x() * K;
    float largest = 0;
    for (std::int64_t k = t.thread() * 8; k < K; k += t.num_threads() * 8) {
      float values[8];
      load_8(row + k, values);
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[i]));
    }
    quantize_row(t, row, largest, K, reinterpret_cast<float*>(t.shared()), out_MK, scale_M);
  }
};

// AddRmsNorm<Bf16, Delta>, then QuantizeRows<Bf16> of its output, which is not stored.
template <typename Delta = Bf16>
struct NormQuantize {
  static constexpr const char* kName = "norm_quantize";
  static constexpr int kMaxThreads = 256;
  float* hidden_TD;       // the residual stream
  const Delta* delta_TD;  // or nullptr
  const float* weight_D;  // or nullptr
  std::uint8_t* out_TD;
  float* scale_T;
  std::int64_t D;  // a multiple of 8
  float eps;
  float factor = 1.0f;  // as in AddNorm

  // One block per token. The row stays in shared memory between the passes over it.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .threads = kMaxThreads,
            .shared_bytes = (32 + static_cast<std::size_t>(D)) * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    float* row_D = scratch + 32;
    const float scale = add_and_norm<8>(t, hidden_TD, delta_TD, factor, D, eps, scratch, row_D);
    float largest = 0;
    for (std::int64_t d = t.thread() * 8; d < D; d += t.num_threads() * 8) {
      float values[8];
      normed<8>(row_D, weight_D, d, scale, values);
      largest = rounded_and_largest(values, largest);
      keep_8(row_D + d, values);
    }
    quantize_row(t, row_D, largest, D, scratch, out_TD, scale_T);
  }
};

// GateMultiply<Bf16>, then QuantizeRows<Bf16>.
struct GateQuantize {
  static constexpr const char* kName = "gate_quantize";
  static constexpr int kMaxThreads = 256;
  const Bf16* gate_up_TF2;  // [T, 2F], gate first
  std::uint8_t* out_TF;
  float* scale_T;
  std::int64_t F;  // a multiple of 8
  Activation activation;

  // One block per token. The bf16 row stays in shared memory until its largest number is known: 28 KB for an 8B model.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .threads = kMaxThreads,
            .shared_bytes = 32 * sizeof(float) + static_cast<std::size_t>(F) * sizeof(Bf16)};
  }
  // Longer rows do not fit into shared memory and need two kernels.
  static constexpr std::int64_t kMostColumns = 48 << 10;

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* scratch = reinterpret_cast<float*>(t.shared());
    auto* row_F = reinterpret_cast<Bf16*>(scratch + 32);
    const Bf16* gates = gate_up_TF2 + t.block_x() * 2 * F;
    float largest = 0;
    for (std::int64_t f = t.thread() * 8; f < F; f += t.num_threads() * 8) {
      float gate[8], up[8];
      load_8(gates + f, gate);
      load_8(gates + F + f, up);
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) gate[i] = gated(activation, gate[i], up[i]);
      largest = rounded_and_largest(gate, largest);
      keep_8(row_F + f, gate);
    }
    quantize_row(t, row_F, largest, F, scratch, out_TF, scale_T);
  }
};

}  // namespace magister::gpu
