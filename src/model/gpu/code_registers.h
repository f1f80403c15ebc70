// Stored weights in registers: words of bf16, int8 or int4 become pairs of bf16 for the tensor cores, without rounding.
// Products and dequantisation share this file because both read the same layout, and x must have the order in which
// codes come out of a word.
// Sources: the PTX ISA on lop3, prmt and bf16x2; adding a number under a fixed exponent is a known method (128 + n is
// 0x4300 | n).
#pragma once

#include "magister/device/device_code.h"
#include "magister/io/checkpoint/stored_codes.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace magister::gpu {

// Codes that are floats themselves, e4m3 in 8 bits or e2m1 (MXFP4's) in 4, and have no offset. Only GPUs multiply with
// them, so CodeFormat, which describes files and CPUs' codes, does not name them.
inline constexpr auto kFloatCodes = static_cast<CodeFormat::Offset>(3);

// a * b for both halves, rounded once. With floats as codes b is a power of two, and the product exact.
MAGISTER_DEVICE std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDACC__)
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&product);
#else
  return pack_bf16(bits_as_float(a << 16) * bits_as_float(b << 16),
                   bits_as_float(a & 0xffff0000u) * bits_as_float(b & 0xffff0000u));
#endif
}

// a - b for both halves; here always integers up to 256, so the differences are exact.
MAGISTER_DEVICE std::uint32_t subtract_pairs(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDACC__)
  const __nv_bfloat162 difference =
      __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&difference);
#else
  return pack_bf16(bits_as_float(a << 16) - bits_as_float(b << 16),
                   bits_as_float(a & 0xffff0000u) - bits_as_float(b & 0xffff0000u));
#endif
}

// (word & mask) | bits in one instruction. With constants that are visible to the compiler it would use two, because an
// instruction can hold only one of them.
MAGISTER_DEVICE std::uint32_t and_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
#if defined(__CUDACC__)
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
#else
  return (word & mask) | bits;
#endif
}

// Combines the lower (upper) halves of two words into one word, a's first.
MAGISTER_DEVICE std::uint32_t lower_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, 0x5410);
#else
  return (a & 0xffffu) | b << 16;
#endif
}
MAGISTER_DEVICE std::uint32_t upper_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, 0x7632);
#else
  return a >> 16 | (b & 0xffff0000u);
#endif
}

MAGISTER_DEVICE float half_as_float(std::uint16_t bits) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The exponents differ by 112. The product also handles subnormal numbers, and is exact.
  return bits_as_float(sign | float_as_bits(bits_as_float(magnitude << 13) * bits_as_float(0x77800000u)));
#endif
}
MAGISTER_DEVICE float scale_as_float(std::uint16_t bits, bool is_half) {
  return is_half ? half_as_float(bits) : to_float(Bf16{bits});
}

// Eight inputs of an output are a "unit" of 4, 2 or 1 words. Codes are unsigned; int8 codes are stored minus 128, as
// signed bytes.
template <int kBits>
struct CodeUnit {
  static_assert(kBits == 16 || kBits == 8 || kBits == 4);
  static constexpr int kWords = kBits / 4;

  // The number that widen() subtracts to get code - zero, twice in a word. The fixed exponent contributes 128.
  MAGISTER_DEVICE static std::uint32_t offset(float zero) {
    const float value = kBits == 4 ? 128.0f + zero : zero - 128.0f;
    return pack_bf16(value, value);
  }

  // Returns 4 pairs for the tensor cores. For int8 they hold inputs (0,2) (1,3) (4,6) (5,7), for int4 (0,4) (1,5) (2,6)
  // (3,7), because one operation extracts numbers at the same position of both halves of a word. int8 with kMiddle does
  // not use `minus`.
  template <CodeFormat::Offset kOffset>
  MAGISTER_DEVICE static void widen(const std::uint32_t* words, std::uint32_t minus, std::uint32_t (&pairs)[4]) {
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kBits == 16) {
        pairs[i] = words[i];
      } else if constexpr (kOffset == kFloatCodes) {
        pairs[i] = widen_floats(words, i);
      } else if constexpr (kBits == 8) {
        // A signed byte is its low 7 bits minus 128 if the sign bit is set. The sign bit becomes the lowest bit of a
        // bf16's exponent: (128 + low) - (sign ? 256 : 128).
        const std::uint32_t bytes = words[i / 2] >> (8 * (i % 2));
        pairs[i] = subtract_pairs(and_or(bytes, 0x007f007fu, 0x43004300u), and_or(bytes, 0x00800080u, 0x43004300u));
        if constexpr (kOffset != CodeFormat::Offset::kMiddle) pairs[i] = subtract_pairs(pairs[i], minus);
      } else {
        pairs[i] = subtract_pairs(and_or(words[0] >> (4 * i), 0x000f000fu, 0x43004300u), minus);
      }
    }
  }

  // Sign, exponent and mantissa of a small float are moved to those of a bf16, subnormal numbers too. It is then too
  // small by the difference of the exponents' biases: 127 - 7 for e4m3, 127 - 1 for e2m1. e4m3's NaN, all bits of
  // exponent and mantissa, gets the exponent of a bf16's NaN; e2m1 has none.
  MAGISTER_DEVICE static std::uint32_t widen_floats(const std::uint32_t* words, int i) {
    if constexpr (kBits == 8) {
      const std::uint32_t bytes = words[i / 2] >> (8 * (i % 2)), low = bytes & 0x007f007fu,
                          nan = (low + 0x00010001u) & 0x00800080u;
      return multiply_pairs((bytes & 0x00800080u) << 8 | low << 4 | nan * 0xffu, 0x7b807b80u);
    } else {
      const std::uint32_t codes = words[0] >> (4 * i);
      return multiply_pairs((codes & 0x00080008u) << 12 | (codes & 0x00070007u) << 6, 0x7e807e80u);
    }
  }

  // Brings x of eight consecutive inputs into the order of widen().
  MAGISTER_DEVICE static void arrange(const Words4& x, std::uint32_t (&pairs)[4]) {
    if constexpr (kBits == 16) {
      for (int i = 0; i < 4; ++i) pairs[i] = x.word[i];
    } else {
      constexpr int kOther = kBits == 8 ? 1 : 2;
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t a = x.word[kBits == 8 ? 2 * i : i], b = x.word[(kBits == 8 ? 2 * i : i) + kOther];
        pairs[2 * i] = lower_halves(a, b);
        pairs[2 * i + 1] = upper_halves(a, b);
      }
    }
  }
};

}  // namespace magister::gpu
