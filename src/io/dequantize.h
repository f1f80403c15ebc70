// Storage types: sizes, and conversion of element ranges of one row to f32. Block layouts are ggml's.
// Source: ggml's block definitions (block_q8_0, block_q4_0, block_q4_1, block_q6_K).
#pragma once

#include <cstddef>
#include <cstdint>

#include "magister/io/tensor_file.h"

namespace magister {

struct StorageLayout {
  std::int64_t block_elements;  // 1 for plain types
  std::int64_t block_bytes;
};
StorageLayout layout_of(StorageType type);

// Elements [begin, end) of the row that starts at `row` -> out[0, end - begin). The row's bytes were checked before.
void convert_to_f32(StorageType type, const std::byte* row, std::int64_t begin, std::int64_t end, float* out);

}  // namespace magister
