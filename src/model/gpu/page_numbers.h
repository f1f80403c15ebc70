// Eight numbers of a key or value in the type in which a page holds them, for the kernels of decoding attention.
#pragma once

#include "model/gpu/kv_code_kernels.h"

namespace magister::gpu {

// The type of numbers in pages of codes.
struct E4m3 {
  std::uint8_t bits;
};

// Eight numbers of a row in their stored dtype.
template <typename A>
struct Run8 {
  Words4 raw[sizeof(A) / 2];
  // For rows whose size is a multiple of 8: loads from number e on.
  MAGISTER_DEVICE void load(const A* row, int e) {
    constexpr std::size_t kAtOnce = 16 / sizeof(A);
    MAGISTER_UNROLL
    for (std::size_t i = 0; i < sizeof(A) / 2; ++i) raw[i] = load_16(row + e + i * kAtOnce);
  }
  // For any row, number by number; zeros beyond E.
  MAGISTER_DEVICE void load(const A* row, int e, int E) {
    *this = {};
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (e + i < E) put(i, row[e + i]);
    }
  }
  MAGISTER_DEVICE float operator[](int i) const {
    if constexpr (sizeof(A) == 4) return bits_as_float(raw[i / 4].word[i % 4]);
    const std::uint32_t word = raw[0].word[i / 2];
    return bits_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  // A sum of products of these numbers. Only codes have a scale, which is a power of two: after the sum it gives the
  // bits that it gives before.
  MAGISTER_DEVICE static float scaled(float sum) { return sum; }

 private:
  MAGISTER_DEVICE void put(int i, float value) { raw[i / 4].word[i % 4] = float_as_bits(value); }
  MAGISTER_DEVICE void put(int i, Bf16 value) {
    raw[0].word[i / 2] |= static_cast<std::uint32_t>(value.bits) << (16 * (i % 2));
  }
};

template <>
struct Run8<E4m3> {
  Words2 raw;
  float scale;
  MAGISTER_DEVICE void load(const CodeVector& vector, int e) {
    raw = *reinterpret_cast<const Words2*>(vector.codes + e);
    scale = power_as_float(vector.power);
  }
  MAGISTER_DEVICE float operator[](int i) const { return from_e4m3(raw.word[i / 4], i % 4); }
  MAGISTER_DEVICE float scaled(float sum) const { return sum * scale; }
};

}  // namespace magister::gpu
