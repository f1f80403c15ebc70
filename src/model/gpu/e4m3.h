// 8-bit floats of the format e4m3: 3 bits of mantissa, largest number 448. Rows and vectors have a scale each; with a
// power of two as the scale a code times its scale is a bf16 number, whatever the order of the factors.
// Source: Micikevicius et al., arXiv 2209.05433.
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Rounds to nearest, ties to even. |value| is at most 448 here; larger values become 448.
MAGISTER_DEVICE std::uint8_t to_e4m3(float value) {
  const std::uint32_t bits = float_as_bits(value), sign = bits >> 24 & 0x80u;
  std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7f;                                       // NaN
  if (size > 0x43e00000u) size = 0x43e00000u;                                // 448
  if (size < 0x3c800000u) {                                                  // below 2^-6 the step is 2^-9
    const float shifted = bits_as_float(size) + bits_as_float(0x46800000u);  // 2^14: its last bit is 2^-9
    return static_cast<std::uint8_t>(sign | (float_as_bits(shifted) - 0x46800000u));
  }
  const std::uint32_t rounded = size + 0x7ffffu + (size >> 20 & 1);          // drops 20 bits of mantissa
  return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));  // the exponent's bias is 7 instead of 127
}

// Code number `i` (0 to 3) of a word; exact, subnormal numbers included. Codes of NaN give 480.
MAGISTER_DEVICE float from_e4m3(std::uint32_t word, int i) {
  const auto top = static_cast<std::int32_t>(word << (24 - 8 * i));  // the code's sign is the word's
  return bits_as_float(static_cast<std::uint32_t>(top >> 4) & 0x87f00000u) * bits_as_float(0x7b800000u);  // 2^120
}

// Eight neighbouring numbers as codes, the first in the lowest byte.
MAGISTER_DEVICE Words2 e4m3_words(const float (&values)[8]) {
  Words2 words = {};
  MAGISTER_UNROLL
  for (int i = 0; i < 8; ++i) words.word[i / 4] |= static_cast<std::uint32_t>(to_e4m3(values[i])) << (8 * (i % 4));
  return words;
}

// The exponent of the smallest power of two, at least 2^-126, that divides numbers of this size to 448 or less, as a
// byte with a bias of 127. 255, an infinite scale, for infinity and NaN, so that codes of such numbers do not look
// finite. size_bits: the bits of an f32 without its sign.
MAGISTER_DEVICE std::uint32_t power_for_e4m3(std::uint32_t size_bits) {
  const std::uint32_t exponent = size_bits >> 23;
  if (exponent == 255) return 255;
  const std::uint32_t power = exponent + ((size_bits & 0x7fffffu) > 0x600000u ? 1 : 0);  // 448 is 1.75 * 2^8
  return power > 9 ? power - 8 : 1;
}
MAGISTER_DEVICE float power_as_float(std::uint32_t power) { return bits_as_float(power << 23); }
MAGISTER_DEVICE float inverse_of_power(std::uint32_t power) {
  return power == 255 ? 1.0f : bits_as_float((254 - power) << 23);
}

}  // namespace magister::gpu
