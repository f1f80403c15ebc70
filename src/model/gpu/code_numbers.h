// Codes in registers become the bf16 numbers that they stand for, with scale and offset: the same numbers, rounded the
// same way, that Dequantize (dequantize_kernel.h) writes for products over prompts.
// Source: io/checkpoint/stored_codes.h; a whole number in the lowest bits of 2^23 is a known way to f32.
#pragma once

#include <type_traits>

#include "model/gpu/product_step.h"

namespace magister::gpu {

// Pairs of neighbouring inputs of an output, as the tensor cores take them. A Unit is what eight inputs have.
//
// kInPairs: int8 around the middle with scales of bf16. Code and scale have eight bits each, so a product of two bf16
// rounds as the f32 does: 5 instructions a pair, where other codes need 8 or 9.
template <int kBits, bool kInPairs>
struct CodeNumbers {
  static_assert(kBits == 8 || (kBits == 4 && !kInPairs));
  static constexpr int kWords = kBits / 4;  // of eight codes

  // A group's scale and offset, ready for use: the number is (code - minus) * scale + plus, where code counts from 0
  // behind 2^23. One of both is 0.
  struct alignas(16) Group {
    float scale, minus, plus;
  };
  struct Pair {
    std::uint32_t scales;  // twice the same
  };
  using Scale = std::conditional_t<kInPairs, Pair, Group>;

  MAGISTER_DEVICE static Scale scale_of(const StoredWeight& w, std::uint32_t scale, std::uint32_t offset) {
    if constexpr (kInPairs) {
      return {scale * 0x10001u};
    } else {
      const float value = scale_as_float(static_cast<std::uint16_t>(scale), w.half_scales),
                  stored = half_as_float(static_cast<std::uint16_t>(offset));
      if (w.offset == CodeFormat::Offset::kMinimum) return {value, kFirst, stored};
      const float zero = w.offsets != nullptr ? stored : kBits == 8 ? 128.0f : 8.0f;
      return {value, kFirst + zero, 0.0f};
    }
  }

  // Inputs (0,1) (2,3) (4,5) (6,7) of eight neighbours.
  MAGISTER_DEVICE static void widen(const std::uint32_t (&words)[kWords], const Scale& group,
                                    std::uint32_t (&pairs)[4]) {
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kInPairs) {
        pairs[i] = multiply_pairs(signed_pair(words[i / 2], i % 2), group.scales);
      } else {
        pairs[i] = pack_bf16(number(words, 2 * i, group), number(words, 2 * i + 1, group));
      }
    }
  }

 private:
  static constexpr float kFirst = 8388608.0f;  // 2^23, bits 0x4b000000

  MAGISTER_DEVICE static float number(const std::uint32_t (&words)[kWords], int i, const Group& group) {
    std::uint32_t bits;
    if constexpr (kBits == 8) {
      bits = byte_behind(words[i / 4] ^ 0x80808080u, i % 4);
    } else {
      bits = and_or(words[0] >> (4 * i), 0xfu, 0x4b000000u);
    }
    return fmaf(bits_as_float(bits) - group.minus, group.scale, group.plus);
  }

  MAGISTER_DEVICE static std::uint32_t byte_behind(std::uint32_t word, int i) {
#if defined(__CUDACC__)
    return __byte_perm(word, 0x4b000000u, 0x7440u + static_cast<unsigned>(i));
#else
    return (word >> (8 * i) & 0xffu) | 0x4b000000u;
#endif
  }

  // Signed bytes 2 half and 2 half + 1 of a word; see CodeUnit::widen().
  MAGISTER_DEVICE static std::uint32_t signed_pair(std::uint32_t word, int half) {
#if defined(__CUDACC__)
    const std::uint32_t bytes = __byte_perm(word, 0, half == 0 ? 0x4140u : 0x4342u);
#else
    const std::uint32_t two = word >> (16 * half), bytes = (two & 0xffu) | (two & 0xff00u) << 8;
#endif
    return subtract_pairs(and_or(bytes, 0x007f007fu, 0x43004300u), and_or(bytes, 0x00800080u, 0x43004300u));
  }
};

}  // namespace magister::gpu
