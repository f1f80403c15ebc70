// Conversion of stored elements, block by block; a range may start and end inside a block. These are plain loops that
// the compiler turns into AVX2 at -O3 (because of the file's name); only half precision needs an explicit instruction
// (F16C). Every product here is exact in f32, except Q6_K's last, which no sum follows. So fused multiply-adds cannot
// change a bit.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/checkpoint/dequantize.h"
#include "io/checkpoint/expand_blocks.h"
#include "magister/core/error.h"

namespace magister {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const std::byte* from) { return _cvtsh_ss(load<std::uint16_t>(from)); }

void widen_f16(const std::byte* from, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  }
  for (; i < count; ++i) out[i] = half(from + 2 * i);
}

void widen_bf16(const std::byte* from, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(load<std::uint16_t>(from + 2 * i)) << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

template <typename T>
void widen(const std::byte* from, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(load<T>(from + i * static_cast<std::int64_t>(sizeof(T))));
  }
}

void narrow_to_bf16(const float* values, std::int64_t count, std::uint16_t* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    out[i] = static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
  }
}

void narrow_to_f16(const float* values, std::int64_t count, std::uint16_t* out) {
  constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(values + i), kNearestEven));
  }
  for (; i < count; ++i) out[i] = static_cast<std::uint16_t>(_cvtss_sh(values[i], kNearestEven));
}

// e4m3fn: sign, 4 bits of exponent (bias 7), 3 bits of mantissa; no infinities, all ones is NaN. Source: OCP 8-bit
// floating point.
float widened_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value =
      std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + 8), (exponent == 0 ? 1 : exponent) - 10);
  if ((bits & 0x7F) == 0x7F) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -value : value;
}

void widen_e4m3(const std::byte* from, std::int64_t count, float* out) {
  static const auto table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[static_cast<std::size_t>(i)] = widened_e4m3(static_cast<std::uint8_t>(i));
    return values;
  }();
  for (std::int64_t i = 0; i < count; ++i) out[i] = table[std::to_integer<std::size_t>(from[i])];
}

// Each function below expands one block into block_elements floats.
void expand_q8_0(const std::byte* block, float* __restrict out) {
  const float d = half(block);
  const auto* quants = reinterpret_cast<const signed char*>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(quants[i]);
}

void expand_q4_0(const std::byte* block, float* __restrict out) {
  const float d = half(block);
  const auto* pairs = reinterpret_cast<const unsigned char*>(block + 2);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((pairs[i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>((pairs[i] >> 4) - 8);
}

void expand_q4_1(const std::byte* block, float* __restrict out) {
  const float d = half(block), m = half(block + 2);
  const auto* pairs = reinterpret_cast<const unsigned char*>(block + 4);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(pairs[i] & 15) + m;
  for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>(pairs[i] >> 4) + m;
}

// Returns a 5-bit number: its low 4 bits from 16 pairs of nibbles, its fifth bit from `fifth`, whose lowest bit is the
// first.
int five_bits(const unsigned char* pairs, std::uint32_t fifth, int i) {
  const int low = i < 16 ? pairs[i] & 15 : pairs[i - 16] >> 4;
  return low | static_cast<int>(fifth >> i & 1u) << 4;
}

void expand_q5_0(const std::byte* block, float* __restrict out) {
  const float d = half(block);
  const auto fifth = load<std::uint32_t>(block + 2);
  const auto* pairs = reinterpret_cast<const unsigned char*>(block + 6);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(pairs, fifth, i) - 16);
}

void expand_q5_1(const std::byte* block, float* __restrict out) {
  const float d = half(block), m = half(block + 2);
  const auto fifth = load<std::uint32_t>(block + 4);
  const auto* pairs = reinterpret_cast<const unsigned char*>(block + 8);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(pairs, fifth, i)) + m;
}

// Q4_K and Q5_K, 256 elements: f16 scale, f16 scale of the minima, eight pairs of 6 bits (scale, minimum) in 12 bytes,
// in Q5_K 32 bytes of fifth bits, then 128 bytes of nibbles: 64 elements in 32 bytes, low halves first.
template <int Bits>
void expand_k(const std::byte* block, float* __restrict out) {
  const float d = half(block), dmin = half(block + 2);
  const auto* packed = reinterpret_cast<const unsigned char*>(block + 4);
  const unsigned char* high = packed + 12;
  const unsigned char* nibbles = high + (Bits == 5 ? 32 : 0);
  for (std::ptrdiff_t part = 0; part < 8; ++part) {
    const int scale = part < 4 ? packed[part] & 63 : (packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4;
    const int minimum = part < 4 ? packed[part + 4] & 63 : packed[part + 4] >> 4 | (packed[part] >> 6) << 4;
    const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(minimum);
    const unsigned char* from = nibbles + part / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      int quant = part % 2 == 0 ? from[i] & 15 : from[i] >> 4;
      if constexpr (Bits == 5) quant |= (high[i] >> part & 1) << 4;
      out[part * 32 + i] = step * static_cast<float>(quant) - offset;
    }
  }
}

// 256 elements: 128 bytes of low 4 bits, 64 of high 2 bits, 16 scales of 16 elements each, one f16 scale of the scales.
void expand_q6_k(const std::byte* block, float* __restrict out) {
  const float d = half(block + 208);
  const auto* bytes = reinterpret_cast<const unsigned char*>(block);
  const auto* all_scales = reinterpret_cast<const signed char*>(block + 192);
  for (std::ptrdiff_t group = 0; group < 2; ++group) {
    for (std::ptrdiff_t part = 0; part < 4; ++part) {
      const unsigned char* low = bytes + group * 64 + (part & 1) * 32;
      const unsigned char* high = bytes + 128 + group * 32;
      const std::ptrdiff_t low_shift = part < 2 ? 0 : 4, high_shift = 2 * part;
      for (std::ptrdiff_t run = 0; run < 2; ++run) {
        const float scale = d * static_cast<float>(all_scales[group * 8 + part * 2 + run]);
        float* to = out + group * 128 + part * 32 + run * 16;
        for (int i = 0; i < 16; ++i) {
          const int quant = (low[run * 16 + i] >> low_shift & 15) | (high[run * 16 + i] >> high_shift & 3) << 4;
          to[i] = scale * static_cast<float>(quant - 32);
        }
      }
    }
  }
}

template <void (*Expand)(const std::byte*, float*), std::int64_t kElements, std::int64_t kBytes>
void convert_blocks(const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  float expanded[kElements];
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t block = at / kElements, inside = at % kElements;
    const std::int64_t count = std::min(kElements - inside, end - at);
    if (count == kElements) {
      Expand(row + block * kBytes, out + (at - begin));
    } else {
      Expand(row + block * kBytes, expanded);
      std::memcpy(out + (at - begin), expanded + inside, static_cast<std::size_t>(count) * sizeof(float));
    }
    at += count;
  }
}

void convert_to_f32(StorageType type, const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  const StorageLayout layout = layout_of(type);
  const std::byte* from = row + begin * layout.block_bytes;  // plain types only
  const std::int64_t count = end - begin;
  switch (type) {
    case StorageType::kF32:
      std::memcpy(out, from, static_cast<std::size_t>(count) * 4);
      return;
    case StorageType::kF16:
      return widen_f16(from, count, out);
    case StorageType::kBF16:
      return widen_bf16(from, count, out);
    case StorageType::kF64:
      return widen<double>(from, count, out);
    case StorageType::kI8:
      return widen<std::int8_t>(from, count, out);
    case StorageType::kI16:
      return widen<std::int16_t>(from, count, out);
    case StorageType::kI32:
      return widen<std::int32_t>(from, count, out);
    case StorageType::kI64:
      return widen<std::int64_t>(from, count, out);
    case StorageType::kU8:
    case StorageType::kBool:
      return widen<std::uint8_t>(from, count, out);
    case StorageType::kF8_E4M3:
      return widen_e4m3(from, count, out);
    case StorageType::kQ8_0:
      return convert_blocks<expand_q8_0, 32, 34>(row, begin, end, out);
    case StorageType::kQ4_0:
      return convert_blocks<expand_q4_0, 32, 18>(row, begin, end, out);
    case StorageType::kQ4_1:
      return convert_blocks<expand_q4_1, 32, 20>(row, begin, end, out);
    case StorageType::kQ5_0:
      return convert_blocks<expand_q5_0, 32, 22>(row, begin, end, out);
    case StorageType::kQ5_1:
      return convert_blocks<expand_q5_1, 32, 24>(row, begin, end, out);
    case StorageType::kQ4_K:
      return convert_blocks<expand_k<4>, 256, 144>(row, begin, end, out);
    case StorageType::kQ5_K:
      return convert_blocks<expand_k<5>, 256, 176>(row, begin, end, out);
    case StorageType::kQ6_K:
      return convert_blocks<expand_q6_k, 256, 210>(row, begin, end, out);
    case StorageType::kQ2_K:
      return convert_blocks<expand_q2_k, 256, 84>(row, begin, end, out);
    case StorageType::kQ3_K:
      return convert_blocks<expand_q3_k, 256, 110>(row, begin, end, out);
    case StorageType::kIQ4_NL:
      return convert_blocks<expand_iq4_nl, 32, 18>(row, begin, end, out);
    case StorageType::kMXFP4:
      return convert_blocks<expand_mxfp4, 32, 17>(row, begin, end, out);
  }
}

}  // namespace

StorageLayout layout_of(StorageType type) {
  switch (type) {
    case StorageType::kF32:
    case StorageType::kI32:
      return {1, 4};
    case StorageType::kF16:
    case StorageType::kBF16:
    case StorageType::kI16:
      return {1, 2};
    case StorageType::kF64:
    case StorageType::kI64:
      return {1, 8};
    case StorageType::kI8:
    case StorageType::kU8:
    case StorageType::kBool:
    case StorageType::kF8_E4M3:
      return {1, 1};
    case StorageType::kQ8_0:
      return {32, 34};
    case StorageType::kQ4_0:
      return {32, 18};
    case StorageType::kQ4_1:
      return {32, 20};
    case StorageType::kQ5_0:
      return {32, 22};
    case StorageType::kQ5_1:
      return {32, 24};
    case StorageType::kQ4_K:
      return {256, 144};
    case StorageType::kQ5_K:
      return {256, 176};
    case StorageType::kQ6_K:
      return {256, 210};
    case StorageType::kQ2_K:
      return {256, 84};
    case StorageType::kQ3_K:
      return {256, 110};
    case StorageType::kIQ4_NL:
      return {32, 18};
    case StorageType::kMXFP4:
      return {32, 17};
  }
  fail(ExitCode::kInternal, "storage type {} has no layout (a case is missing); report this", static_cast<int>(type));
}

void convert_row(StorageType type, const std::byte* row, std::int64_t begin, std::int64_t end, FloatType to,
                 void* out) {
  if (to == FloatType::kF32) return convert_to_f32(type, row, begin, end, static_cast<float*>(out));
  auto* const halves = static_cast<std::uint16_t*>(out);
  if ((to == FloatType::kBF16 && type == StorageType::kBF16) || (to == FloatType::kF16 && type == StorageType::kF16)) {
    std::memcpy(halves, row + begin * 2, static_cast<std::size_t>(end - begin) * 2);
    return;
  }
  // 8 KiB of f32, which stay in the L1 cache. Pieces are whole blocks if begin is a block's start.
  constexpr std::int64_t kPiece = 2048;
  float values[kPiece];
  for (std::int64_t at = begin; at < end; at += kPiece) {
    const std::int64_t count = std::min(kPiece, end - at);
    convert_to_f32(type, row, at, at + count, values);
    if (to == FloatType::kBF16) {
      narrow_to_bf16(values, count, halves + (at - begin));
    } else {
      narrow_to_f16(values, count, halves + (at - begin));
    }
  }
}

}  // namespace magister
