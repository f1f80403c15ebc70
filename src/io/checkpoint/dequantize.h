// Storage types: sizes, and conversion of element ranges of one row to f32, bf16 or f16. Block layouts are ggml's.
// Rounding to bf16 and f16 is to nearest, ties to even; a NaN becomes the quiet NaN. Equal types are copied bit by bit.
// Source: ggml's block definitions (block_q8_0, block_q4_0, ..., block_q6_K); bfloat16 = the upper half of f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

struct StorageLayout {
  std::int64_t block_elements;  // 1 for plain types
  std::int64_t block_bytes;
};
StorageLayout layout_of(StorageType type);

enum class FloatType { kF32, kBF16, kF16 };

// Converts elements [begin, end) of the row that starts at `row` into out[0, end - begin). The caller has checked the
// row's size.
void convert_row(StorageType type, const std::byte* row, std::int64_t begin, std::int64_t end, FloatType to, void* out);

}  // namespace magister
