// These are plain loops that the compiler turns into AVX2 at -O3 (because of the file's name). Products are exact in
// f32 and Q2_K's difference is rounded once, so fused multiply-adds change no bit.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "io/checkpoint/expand_blocks.h"

namespace magister {
namespace {

float half_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return _cvtsh_ss(bits);
}

// 16 bytes, each with two 4-bit indices: the low halves are the first 16 elements.
void expand_codebook(const std::byte* pairs_at, float scale, const signed char (&numbers)[16], float* __restrict out) {
  const auto* pairs = reinterpret_cast<const unsigned char*>(pairs_at);
  for (int i = 0; i < 16; ++i) out[i] = scale * static_cast<float>(numbers[pairs[i] & 15]);
  for (int i = 0; i < 16; ++i) out[i + 16] = scale * static_cast<float>(numbers[pairs[i] >> 4]);
}

// The four 2-bit numbers of a byte belong to elements 32 apart.
int two_bits(const unsigned char* pairs, int half_of_block, int part, int i) {
  return pairs[half_of_block * 32 + i] >> (2 * part) & 3;
}

}  // namespace

// 16 bytes with scale (low 4 bits) and minimum (high 4 bits), 64 of numbers, f16 scale of the scales, f16 scale of the
// minima.
void expand_q2_k(const std::byte* block, float* __restrict out) {
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  const auto* scales = reinterpret_cast<const unsigned char*>(block);
  const unsigned char* numbers = scales + 16;
  for (int run = 0; run < 16; ++run) {
    const float step = d * static_cast<float>(scales[run] & 15), offset = dmin * static_cast<float>(scales[run] >> 4);
    const int half_of_block = run / 8, part = run % 8 / 2, begin = run % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      out[run * 16 + i] = step * static_cast<float>(two_bits(numbers, half_of_block, part, begin + i)) - offset;
    }
  }
}

// 32 bytes of third bits (a 0 subtracts 4), 64 of numbers, 16 scales of 6 bits in 12 bytes, one f16 scale of the
// scales.
void expand_q3_k(const std::byte* block, float* __restrict out) {
  const float d = half_at(block + 108);
  const auto* third = reinterpret_cast<const unsigned char*>(block);
  const unsigned char* numbers = third + 32;
  const unsigned char* packed = third + 96;
  for (int run = 0; run < 16; ++run) {
    const int low = run < 8 ? packed[run] & 15 : packed[run - 8] >> 4;
    const int high = packed[8 + run % 4] >> (run / 4 * 2) & 3;
    const float step = d * static_cast<float>((low | high << 4) - 32);
    const int half_of_block = run / 8, part = run % 8 / 2, begin = run % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      const int takes_away = third[begin + i] >> (run / 2) & 1 ? 0 : 4;
      out[run * 16 + i] = step * static_cast<float>(two_bits(numbers, half_of_block, part, begin + i) - takes_away);
    }
  }
}

void expand_iq4_nl(const std::byte* block, float* __restrict out) {
  static constexpr signed char kNumbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
  expand_codebook(block + 2, half_at(block), kNumbers, out);
}

// The numbers are doubled e2m1 values; the scale is 2^(byte - 128), which is a denormal for the bytes 0 and 1.
void expand_mxfp4(const std::byte* block, float* __restrict out) {
  static constexpr signed char kNumbers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const auto exponent = std::to_integer<std::uint32_t>(block[0]);
  const std::uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  expand_codebook(block + 1, scale, kNumbers, out);
}

}  // namespace magister
