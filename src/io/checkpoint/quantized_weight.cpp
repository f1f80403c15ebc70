// Windows of quantised weights: first the codes of all rows, in the order of the file, then zeros and scales group by
// group. Callers request tiles of some dozen rows, so that a word whose codes run along the outputs, or adjacent words
// of neighbouring outputs, are fetched once.
#include "io/checkpoint/quantized_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/checkpoint/dequantize.h"
#include "magister/core/error.h"

namespace magister {
namespace {

struct Window {
  std::int64_t row_begin, row_end, column_begin, column_end;
  std::int64_t columns() const { return column_end - column_begin; }
};

// AWQ: the position in a word of each of its eight outputs.
constexpr std::int64_t kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

std::uint16_t half_bits(std::int64_t number) {
  const auto value = static_cast<float>(number);
  const std::byte* const from = reinterpret_cast<const std::byte*>(&value);
  std::uint16_t bits = 0;
  convert_row(StorageType::kF32, from, 0, 1, FloatType::kF16, &bits);
  return bits;
}

// Keeps the compiler from fusing a product into the sum that follows it.
float rounded(float x) {
  asm volatile("" : "+x"(x));
  return x;
}

std::uint32_t word_at(const StoredPart& part, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, part.data + index * 4, sizeof word);
  return word;
}

std::int64_t byte_at(const StoredPart& part, std::int64_t index) {
  return std::to_integer<std::int64_t>(part.data[index]);
}

// Calls put(output, input, code) for every code of a window, in the order of the file. Covers codes in words and signed
// bytes; 128 is added to the latter.
template <typename Put>
void each_code(const QuantizedWeight& w, const Window& window, const Put& put) {
  const std::int64_t n = 32 / std::min<std::int64_t>(w.bits, 32), bits = w.bits;
  switch (w.layout) {
    case CodeLayout::kAlongInputs: {
      const std::int64_t words = (w.in + n - 1) / n;
      for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
        for (std::int64_t i = window.column_begin; i < window.column_end; ++i)
          put(o, i, code_of(word_at(w.codes, o * words + i / n), i % n, bits));
      }
      return;
    }
    case CodeLayout::kWordsByInput:
      for (std::int64_t i = window.column_begin; i < window.column_end; ++i) {
        for (std::int64_t o = window.row_begin; o < window.row_end; ++o)
          put(o, i, code_of(word_at(w.codes, i / n * w.out + o), i % n, bits));
      }
      return;
    case CodeLayout::kAwq:
      for (std::int64_t i = window.column_begin; i < window.column_end; ++i) {
        for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
          put(o, i, code_of(word_at(w.codes, i * (w.out / 8) + o / 8), kAwqPlace[o % 8], 4));
        }
      }
      return;
    case CodeLayout::kInt8:
      for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
        for (std::int64_t i = window.column_begin; i < window.column_end; ++i)
          put(o, i, byte_at(w.codes, o * w.in + i) ^ 0x80);
      }
      return;
    case CodeLayout::kFp8:
    case CodeLayout::kNibbles:
    case CodeLayout::kMxfp4:
      return;
  }
}

void read_codes(const QuantizedWeight& w, const Window& window, float* out, std::int64_t stride) {
  if (w.layout == CodeLayout::kInt8 || w.layout == CodeLayout::kFp8) {
    for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
      convert_row(w.codes.info->type, w.codes.data + o * w.in, window.column_begin, window.column_end, FloatType::kF32,
                  out + (o - window.row_begin) * stride);
    }
    return;
  }
  each_code(w, window, [&](std::int64_t o, std::int64_t i, std::int64_t code) {
    out[(o - window.row_begin) * stride + i - window.column_begin] = static_cast<float>(code);
  });
}

std::int64_t zero_of(const QuantizedWeight& w, std::int64_t o, std::int64_t g) {
  const std::int64_t n = 32 / std::min<std::int64_t>(w.bits, 32);
  const std::int64_t limit = (std::int64_t{1} << w.bits) - 1;
  switch (w.zero_layout) {
    case ZeroLayout::kConstant:
      return w.center;
    case ZeroLayout::kAlongOutputs:  // zero - 1 is stored in as many bits as a code: 0 as all ones
      return (code_of(word_at(w.zeros, g * ((w.out + n - 1) / n) + o / n), o % n, w.bits) + w.zero_added) & limit;
    case ZeroLayout::kAwq:
      return code_of(word_at(w.zeros, g * (w.out / 8) + o / 8), kAwqPlace[o % 8], 4);
    case ZeroLayout::kByOutput:
      return code_of(word_at(w.zeros, o / n * w.groups + g), o % n, w.bits);
    case ZeroLayout::kInt8:
      return static_cast<std::int8_t>(byte_at(w.zeros, o * w.groups + g));
  }
  return 0;
}

std::int64_t group_of(const QuantizedWeight& w, std::int64_t i) {
  if (!w.group_index) return w.groups == 1 ? 0 : i / w.group;
  const std::int64_t g = int_at(w.group_index, i);
  MAGISTER_CHECK(g >= 0 && g < w.groups, ExitCode::kData,
                 "tensor {} says that input {} belongs to group {}, but there are {} "
                 "(the weight has no scale there); fetch the file again",
                 printable(w.group_index.info->name), i, g, w.groups);
  return g;
}

std::int64_t scale_place(const QuantizedWeight& w, std::int64_t o, std::int64_t g) {
  return w.scales_by_group ? g * w.out + o : o / w.rows_a_scale * w.groups + g;
}

void apply_scales(const QuantizedWeight& w, const Window& window, float* out, std::int64_t stride) {
  for (std::int64_t begin = window.column_begin; begin < window.column_end;) {
    const std::int64_t g = group_of(w, begin);
    std::int64_t end = begin + 1;  // end of the columns of this group
    while (end < window.column_end && group_of(w, end) == g) ++end;
    for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
      const float scale = float_at(w.scales, scale_place(w, o, g));
      const auto zero = static_cast<float>(zero_of(w, o, g));
      float* row = out + (o - window.row_begin) * stride - window.column_begin;
      for (std::int64_t i = begin; i < end; ++i) row[i] = (row[i] - zero) * scale;
      if (w.after_scale == 1) continue;
      for (std::int64_t i = begin; i < end; ++i) row[i] *= w.after_scale;
    }
    begin = end;
  }
}

float absmax_of(const QuantizedWeight& w, std::int64_t block) {
  if (!w.nested_table) return float_at(w.absmax, block);
  const float product =
      rounded(float_at(w.nested_table, byte_at(w.absmax, block)) * float_at(w.nested_absmax, block / w.nested_block));
  return product + w.nested_offset;
}

void read_nibbles(const QuantizedWeight& w, const Window& window, float* out, std::int64_t stride) {
  for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
    float* row = out + (o - window.row_begin) * stride;
    std::int64_t at = o * w.in + window.column_begin;
    const std::int64_t last = o * w.in + window.column_end;
    while (at < last) {
      const float absmax = absmax_of(w, at / w.block);
      const std::int64_t end = std::min(last, (at / w.block + 1) * w.block);
      for (; at < end; ++at) {
        const std::int64_t pair = byte_at(w.codes, at / 2);
        *row++ = w.table[at % 2 == 0 ? pair >> 4 : pair & 15] * absmax;
      }
    }
  }
}

}  // namespace

float float_at(const StoredPart& part, std::int64_t index) {
  float value = 0;
  convert_row(part.info->type, part.data, index, index + 1, FloatType::kF32, &value);
  return value;
}

std::int32_t int_at(const StoredPart& part, std::int64_t index) {
  return static_cast<std::int32_t>(word_at(part, index));
}

std::optional<CodeFormat> code_format_of(const QuantizedWeight& w) {
  const bool codes = w.layout != CodeLayout::kFp8 && w.layout != CodeLayout::kNibbles &&
                     w.layout != CodeLayout::kMxfp4 && (w.bits == 4 || w.bits == 8);
  if (!codes || w.after_scale != 1 || !w.scales || w.scales.info->type == StorageType::kF32) return std::nullopt;
  const std::int64_t group = w.groups == 1 ? 0 : w.group;
  if (group != 0 && group != 32 && group != 64 && group != 128) return std::nullopt;
  const std::int64_t group_size = group == 0 ? std::max<std::int64_t>(w.in, 1) : group;
  for (std::int64_t i = 0; w.group_index && i < w.in; ++i) {
    if (group_of(w, i) != i / group_size) return std::nullopt;
  }
  CodeFormat format{w.bits, group, CodeFormat::Scale::kF16, CodeFormat::Offset::kZero};
  if (w.scales.info->type == StorageType::kBF16) format.scale = CodeFormat::Scale::kBF16;
  const bool middle = w.layout == CodeLayout::kInt8 ? w.center == 0 : w.center == std::int64_t{1} << (w.bits - 1);
  if (w.zero_layout == ZeroLayout::kConstant && middle) format.offset = CodeFormat::Offset::kMiddle;
  return format;
}

void read_code_window(const QuantizedWeight& w, IndexRange rows, IndexRange columns, const CodeWindow& out) {
  if (rows.size() == 0 || columns.size() == 0) return;
  const Window window{static_cast<std::int64_t>(rows.begin), static_cast<std::int64_t>(rows.end),
                      static_cast<std::int64_t>(columns.begin), static_cast<std::int64_t>(columns.end)};
  each_code(w, window, [&](std::int64_t o, std::int64_t i, std::int64_t code) {
    out.codes[(o - window.row_begin) * out.codes_stride + i - window.column_begin] = static_cast<std::uint8_t>(code);
  });
  const std::int64_t group = w.groups == 1 ? w.in : w.group, first = window.column_begin / group;
  const std::int64_t moved = w.layout == CodeLayout::kInt8 ? 128 : 0;  // as for the codes
  for (std::int64_t o = window.row_begin; o < window.row_end; ++o) {
    for (std::int64_t g = first; g * group < window.column_end; ++g) {
      const std::int64_t at = (o - window.row_begin) * out.groups_stride + g - first;
      std::memcpy(out.scales + at, w.scales.data + scale_place(w, o, g) * 2, 2);
      if (out.offsets != nullptr) out.offsets[at] = half_bits(zero_of(w, o, g) + moved);
    }
  }
}

void dequantize_expert(const QuantizedWeight& w, std::int64_t expert, std::int64_t row_begin, std::int64_t row_end,
                       std::int64_t column_begin, std::int64_t column_end, float* out, std::int64_t out_stride) {
  constexpr double kNumbers[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                   -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};
  for (std::int64_t o = column_begin; o < column_end; ++o) {
    const std::int64_t first = (expert * w.out + o) * w.in;
    float* const column = out + o - column_begin;
    for (std::int64_t i = row_begin; i < row_end;) {
      // The scale is 2^-127 to 2^128. The standard has no number for the last byte; as in transformers it is a power of
      // two, too. f32 cannot hold this scale but some of its products, so products are computed in f64.
      const double scale = std::ldexp(1.0, static_cast<int>(byte_at(w.scales, (first + i) / kMxfp4Group)) - 127);
      const std::int64_t end = std::min(row_end, (i / kMxfp4Group + 1) * kMxfp4Group);
      for (; i < end; ++i) {
        const std::int64_t pair = byte_at(w.codes, (first + i) / 2);
        const double number = kNumbers[i % 2 == 0 ? pair & 15 : pair >> 4] * scale;
        column[(i - row_begin) * out_stride] = static_cast<float>(number);
      }
    }
  }
}

void dequantize_window(const QuantizedWeight& weight, std::int64_t row_begin, std::int64_t row_end,
                       std::int64_t column_begin, std::int64_t column_end, float* out, std::int64_t out_stride) {
  const Window window{row_begin, row_end, column_begin, column_end};
  if (weight.layout == CodeLayout::kNibbles) return read_nibbles(weight, window, out, out_stride);
  read_codes(weight, window, out, out_stride);
  apply_scales(weight, window, out, out_stride);
}

}  // namespace magister
