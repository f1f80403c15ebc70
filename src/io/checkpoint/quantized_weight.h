// One logical weight [out, in], or in MXFP4 [experts, in, out], that a checkpoint stores as codes, scales and zeros in
// several tensors, and its windows in f32.
// weight = (code - zero) * scale, the difference exact, the product rounded once to f32; FP8: value * scale;
// bitsandbytes int8: code * SCB * (1 / 127), 4 bits: table[code] * absmax, each product and sum rounded as that library
// rounds it; MXFP4: one of 16 numbers times a power of two, exact.
// Sources: AutoGPTQ's and AutoAWQ's linear layers, compressed-tensors' compressors, bitsandbytes' dequantisers (layouts
// only); OCP Microscaling Formats 1.0 and transformers' integration of it for MXFP4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/checkpoint/mapped_tensors.h"

namespace magister {

// A stored tensor; `info` is nullptr if the weight has none of this kind.
struct StoredPart {
  const TensorInfo* info = nullptr;
  const std::byte* data = nullptr;
  explicit operator bool() const { return info != nullptr; }
};

enum class CodeLayout {
  kAlongInputs,   // i32 [out, ceil(in / n)], n = 32 / bits codes per word, lowest bits first (compressed-tensors)
  kWordsByInput,  // i32 [in / n, out] (GPTQ)
  kAwq,           // i32 [in, out / 8], nibbles in the order 0 2 4 6 1 3 5 7
  kInt8,          // i8 [out, in]
  kFp8,           // e4m3 [out, in]
  kNibbles,       // u8, flat [out * in / 2], the first in the high half; 16 values in a table (bitsandbytes)
  kMxfp4,         // u8 [experts, out, in / 32, 16], the first of two in the low half; scales u8 [experts, out, in / 32]
};
enum class ZeroLayout {
  kConstant,      // `center`
  kAlongOutputs,  // i32 [groups, ceil(out / n)] (GPTQ)
  kAwq,           // i32 [groups, out / 8]
  kByOutput,      // i32 [ceil(out / n), groups] (compressed-tensors)
  kInt8,          // i8 [out, groups]
};

inline constexpr std::int64_t kMxfp4Group = 32;  // inputs that share a scale

struct QuantizedWeight {
  std::int64_t out = 0, in = 0;
  // kMxfp4: number of experts, each seen as [in, out], as the modules that compute with it do; else 0.
  std::int64_t experts = 0;
  CodeLayout layout = CodeLayout::kAlongInputs;
  std::int64_t bits = 4;
  StoredPart codes;

  StoredPart scales;  // f32, f16 or bf16: [out / rows_a_scale, groups], or [groups, out] if scales_by_group
  bool scales_by_group = false;
  std::int64_t rows_a_scale = 1;       // outputs that share a row of scales
  std::int64_t group = 0, groups = 1;  // inputs per scale; scales per output
  StoredPart group_index;              // i32 [in]: the group of each input; if absent, input / group
  float after_scale = 1;               // an additional factor

  ZeroLayout zero_layout = ZeroLayout::kConstant;
  std::int64_t center = 0;
  StoredPart zeros;
  std::int64_t zero_added = 0;  // 1: the file stores zero - 1

  // kNibbles: the table's values, and the absmax of each block of the flat weight, in f32 or as bytes that index a
  // second table.
  float table[16] = {};
  std::int64_t block = 0, nested_block = 0;
  StoredPart absmax, nested_table, nested_absmax;
  float nested_offset = 0;
};

// Dequantises rows [row_begin, row_end) and columns [column_begin, column_end) into out, row stride in elements. The
// sizes of all parts were checked before. Only values of group_index were not: Error(kData) if one names no group.
void dequantize_window(const QuantizedWeight& weight, std::int64_t row_begin, std::int64_t row_end,
                       std::int64_t column_begin, std::int64_t column_end, float* out, std::int64_t out_stride);

// kMxfp4 only: inputs [row_begin, row_end) and outputs [column_begin, column_end) of one expert, out [inputs, outputs].
void dequantize_expert(const QuantizedWeight& weight, std::int64_t expert, std::int64_t row_begin, std::int64_t row_end,
                       std::int64_t column_begin, std::int64_t column_end, float* out, std::int64_t out_stride);

// The format of the weight's codes if kernels can keep them as stored: 4 or 8 bits, scales of 16 bits, groups of 32, 64
// or 128 inputs or one per output, and inputs in the order of their groups (no activation order). Reads group_index.
std::optional<CodeFormat> code_format_of(const QuantizedWeight& weight);
// Reads a window of these codes.
void read_code_window(const QuantizedWeight& weight, IndexRange rows, IndexRange columns, const CodeWindow& out);

// Element `index` of a stored f32, f16 or bf16 tensor.
float float_at(const StoredPart& part, std::int64_t index);
// Element `index` of a stored i32 tensor.
std::int32_t int_at(const StoredPart& part, std::int64_t index);
// Code number `place` (of 32 / bits) in a word.
inline std::int64_t code_of(std::uint32_t word, std::int64_t place, std::int64_t bits) {
  return static_cast<std::int64_t>(word >> (place * bits) & ((std::uint64_t{1} << bits) - 1));
}

}  // namespace magister
