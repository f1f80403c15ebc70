// Conversion of stored elements to f32, block by block; a range may start and end inside a block.
#include "io/dequantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"

namespace magister {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const std::byte* from) { return static_cast<float>(load<at::Half>(from)); }

template <typename T>
void convert_plain(const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  const std::byte* from = row + begin * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < end - begin; ++i) {
    out[i] = static_cast<float>(load<T>(from + i * static_cast<std::int64_t>(sizeof(T))));
  }
}

// Each expands one block into block_elements floats.
void expand_q8_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(load<std::int8_t>(block + 2 + i));
}

void expand_q4_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[2 + i]);
    out[i] = d * static_cast<float>((pair & 15) - 8);
    out[i + 16] = d * static_cast<float>((pair >> 4) - 8);
  }
}

void expand_q4_1(const std::byte* block, float* out) {
  const float d = half(block), m = half(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[4 + i]);
    out[i] = d * static_cast<float>(pair & 15) + m;
    out[i + 16] = d * static_cast<float>(pair >> 4) + m;
  }
}

// 256 elements: 128 bytes of low 4 bits, 64 of high 2 bits, 16 scales of 16 elements, one f16 super scale.
void expand_q6_k(const std::byte* block, float* out) {
  const float d = half(block + 208);
  for (int group = 0; group < 2; ++group) {
    const std::byte* low = block + group * 64;
    const std::byte* high = block + 128 + group * 32;
    const std::byte* scales = block + 192 + group * 8;
    for (int i = 0; i < 32; ++i) {
      const int h = std::to_integer<int>(high[i]);
      const int q[4] = {(std::to_integer<int>(low[i]) & 15) | ((h & 3) << 4),
                        (std::to_integer<int>(low[i + 32]) & 15) | ((h >> 2 & 3) << 4),
                        (std::to_integer<int>(low[i]) >> 4) | ((h >> 4 & 3) << 4),
                        (std::to_integer<int>(low[i + 32]) >> 4) | ((h >> 6 & 3) << 4)};
      for (int j = 0; j < 4; ++j) {
        const float scale = d * static_cast<float>(load<std::int8_t>(scales + j * 2 + i / 16));
        out[group * 128 + j * 32 + i] = scale * static_cast<float>(q[j] - 32);
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

}  // namespace

StorageLayout layout_of(StorageType type) {
  switch (type) {
    case StorageType::kF32: case StorageType::kI32: return {1, 4};
    case StorageType::kF16: case StorageType::kBF16: case StorageType::kI16: return {1, 2};
    case StorageType::kF64: case StorageType::kI64: return {1, 8};
    case StorageType::kI8: case StorageType::kU8: case StorageType::kBool: return {1, 1};
    case StorageType::kQ8_0: return {32, 34};
    case StorageType::kQ4_0: return {32, 18};
    case StorageType::kQ4_1: return {32, 20};
    case StorageType::kQ6_K: return {256, 210};
  }
  fail(ExitCode::kInternal, "storage type {} has no layout (a case is missing); report this", static_cast<int>(type));
}

void convert_to_f32(StorageType type, const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  switch (type) {
    case StorageType::kF32: std::memcpy(out, row + begin * 4, static_cast<std::size_t>(end - begin) * 4); return;
    case StorageType::kF16: return convert_plain<at::Half>(row, begin, end, out);
    case StorageType::kBF16: return convert_plain<at::BFloat16>(row, begin, end, out);
    case StorageType::kF64: return convert_plain<double>(row, begin, end, out);
    case StorageType::kI8: return convert_plain<std::int8_t>(row, begin, end, out);
    case StorageType::kI16: return convert_plain<std::int16_t>(row, begin, end, out);
    case StorageType::kI32: return convert_plain<std::int32_t>(row, begin, end, out);
    case StorageType::kI64: return convert_plain<std::int64_t>(row, begin, end, out);
    case StorageType::kU8: case StorageType::kBool: return convert_plain<std::uint8_t>(row, begin, end, out);
    case StorageType::kQ8_0: return convert_blocks<expand_q8_0, 32, 34>(row, begin, end, out);
    case StorageType::kQ4_0: return convert_blocks<expand_q4_0, 32, 18>(row, begin, end, out);
    case StorageType::kQ4_1: return convert_blocks<expand_q4_1, 32, 20>(row, begin, end, out);
    case StorageType::kQ6_K: return convert_blocks<expand_q6_k, 256, 210>(row, begin, end, out);
  }
}

}  // namespace magister
