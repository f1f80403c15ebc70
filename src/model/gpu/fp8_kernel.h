// QuantizeRows: rows of activations (or of weights) as 8-bit floats with one scale a row, for fp8 products.
// e4m3: 3 bits of mantissa, largest number 448. Source: Micikevicius et al., arXiv 2209.05433.
// Legend: M rows, K numbers of a row.
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// To the nearest, ties to even; |value| is at most 448 here, larger ones become 448.
MAGISTER_DEVICE std::uint8_t to_e4m3(float value) {
  const std::uint32_t bits = float_as_bits(value), sign = bits >> 24 & 0x80u;
  std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7f;                                       // NaN
  if (size > 0x43e00000u) size = 0x43e00000u;                                // 448
  if (size < 0x3c800000u) {                                                  // below 2^-6 the step is 2^-9
    const float shifted = bits_as_float(size) + bits_as_float(0x46800000u);  // 2^14: its last bit is 2^-9
    return static_cast<std::uint8_t>(sign | (float_as_bits(shifted) - 0x46800000u));
  }
  const std::uint32_t rounded = size + 0x7ffffu + (size >> 20 & 1);          // 20 bits of mantissa go
  return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));  // the exponent's bias is 7 and not 127
}

template <typename A>
struct QuantizeRows {
  static constexpr const char* kName = "quantize_rows";
  static constexpr int kMaxThreads = 256;
  static constexpr float kLargest = 448.0f;
  const A* x_MK;
  std::uint8_t* out_MK;
  float* scale_M;  // x is about out * scale
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
    largest = block_max(t, largest, reinterpret_cast<float*>(t.shared()));
    const float scale = largest > 0 ? largest / kLargest : 1.0f;
    if (t.thread() == 0) scale_M[t.block_x()] = scale;
    for (std::int64_t k = t.thread() * 8; k < K; k += t.num_threads() * 8) {
      float values[8];
      load_8(row + k, values);
      union {
        std::uint8_t byte[8];
        std::uint64_t word;
      } packed;
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) packed.byte[i] = to_e4m3(values[i] / scale);
      *reinterpret_cast<std::uint64_t*>(out_MK + t.block_x() * K + k) = packed.word;
    }
  }
};

}  // namespace magister::gpu
