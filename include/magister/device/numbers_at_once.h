// Moves several bf16 or f32 numbers at once between memory and registers, for the elementwise kernels.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// Moves eight neighbouring numbers: 16 bytes of bf16 or 32 of f32. Pointers must be aligned to 16 bytes, which rows of
// a multiple of eight numbers are; for other rows kernels move one number at a time.
MAGISTER_DEVICE void load_8(const Bf16* from, float (&to)[8]) {
  const Words4 words = load_16(from);
  MAGISTER_UNROLL
  for (int i = 0; i < 8; ++i)
    to[i] = bits_as_float(i % 2 == 0 ? words.word[i / 2] << 16 : words.word[i / 2] & 0xffff0000u);
}
MAGISTER_DEVICE void load_8(const float* from, float (&to)[8]) {
  MAGISTER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Words4 words = load_16(from + 4 * half);
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) to[4 * half + i] = bits_as_float(words.word[i]);
  }
}
MAGISTER_DEVICE Words4 words_of(const float* four) {
  Words4 words;
  MAGISTER_UNROLL
  for (int i = 0; i < 4; ++i) words.word[i] = float_as_bits(four[i]);
  return words;
}
MAGISTER_DEVICE Words4 bf16_words_of(const float (&eight)[8]) {
  Words4 words;
  MAGISTER_UNROLL
  for (int i = 0; i < 4; ++i) words.word[i] = pack_bf16(eight[2 * i], eight[2 * i + 1]);
  return words;
}
MAGISTER_DEVICE void store_8(Bf16* to, const float (&from)[8]) { store_16(to, bf16_words_of(from)); }
MAGISTER_DEVICE void store_8(float* to, const float (&from)[8]) {
  store_16(to, words_of(from));
  store_16(to + 4, words_of(from + 4));
}

// Writes eight numbers to shared memory without bank conflicts.
MAGISTER_DEVICE void keep_8(Bf16* to, const float (&from)[8]) { *reinterpret_cast<Words4*>(to) = bf16_words_of(from); }
MAGISTER_DEVICE void keep_8(float* to, const float (&from)[8]) {
  reinterpret_cast<Words4*>(to)[0] = words_of(from);
  reinterpret_cast<Words4*>(to)[1] = words_of(from + 4);
}

// Moves two numbers: 4 bytes of bf16 or 8 of f32, aligned to that size.
MAGISTER_DEVICE void load_2(const Bf16* from, float (&to)[2]) {
  const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(from);
  to[0] = bits_as_float(word << 16);
  to[1] = bits_as_float(word & 0xffff0000u);
}
MAGISTER_DEVICE void store_2(Bf16* to, const float (&from)[2]) {
  *reinterpret_cast<std::uint32_t*>(to) = pack_bf16(from[0], from[1]);
}
struct alignas(8) Words2 {
  std::uint32_t word[2];
};
MAGISTER_DEVICE void load_2(const float* from, float (&to)[2]) {
  const Words2 words = *reinterpret_cast<const Words2*>(from);
  to[0] = bits_as_float(words.word[0]);
  to[1] = bits_as_float(words.word[1]);
}
MAGISTER_DEVICE void store_2(float* to, const float (&from)[2]) {
  *reinterpret_cast<Words2*>(to) = {{float_as_bits(from[0]), float_as_bits(from[1])}};
}

// Moves one, two or eight numbers.
template <int kAtOnce, typename Number>
MAGISTER_DEVICE void load(const Number* from, float (&to)[kAtOnce]) {
  if constexpr (kAtOnce == 8) {
    load_8(from, to);
  } else if constexpr (kAtOnce == 2) {
    load_2(from, to);
  } else {
    to[0] = to_float(*from);
  }
}
template <int kAtOnce, typename Number>
MAGISTER_DEVICE void store(Number* to, const float (&from)[kAtOnce]) {
  if constexpr (kAtOnce == 8) {
    store_8(to, from);
  } else if constexpr (kAtOnce == 2) {
    store_2(to, from);
  } else {
    *to = stored<Number>(from[0]);
  }
}

// Calls body(AtOnce<8>()) where rows come in eights, else body(AtOnce<1>()).
template <int kNumbers>
struct AtOnce {
  static constexpr int kCount = kNumbers;
};
template <typename Body>
MAGISTER_DEVICE void at_once(bool in_eights, const Body& body) {
  if (in_eights) {
    body(AtOnce<8>());
  } else {
    body(AtOnce<1>());
  }
}

// The sum of squares of `count` numbers, which a block reads together; every thread gets it. scratch: 32 numbers of
// shared memory.
template <int kAtOnce, typename Number, typename Thread>
MAGISTER_DEVICE float sum_of_squares(Thread& t, const Number* numbers, std::int64_t count, float* scratch) {
  float squares = 0;
  for (std::int64_t i = t.thread() * kAtOnce; i < count; i += t.num_threads() * kAtOnce) {
    float values[kAtOnce];
    load<kAtOnce>(numbers + i, values);
    MAGISTER_UNROLL
    for (int j = 0; j < kAtOnce; ++j) squares += values[j] * values[j];
  }
  return block_sum(t, squares, scratch);
}

}  // namespace magister::gpu
