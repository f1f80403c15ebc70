// Quantised weights: int8 or int4, with one scale per group of inputs of an output. Only weights are quantised; the
// activations of texts that are being written are rounded to 16 bits (CodeProduct), and all others stay f32.
// Codes that are made while loading are symmetric: weight = q * scale, which is exact in f32, because a scale is a bf16
// number (8 significant bits and the range of f32; f16 would lose small models' scales below 6e-5). Codes that the file
// already holds are kept with their scales and zero points or minima (CodeFormat), so that weights are exactly the f32
// numbers that the file defines.
// Bytes per weight: int8 1 + 2/group, int4 0.5 + 2/group, and 2/group more with zero points or minima. Outputs are
// padded to 48, and inputs to whole groups of a word.
// Shapes: N outputs, K inputs, P panels of 48 outputs. Source: ggml's block formats for the sign trick of 4 bits.
#pragma once

#include <cstdint>
#include <string>

#include "magister/core/types.h"
#include "magister/io/checkpoint/stored_codes.h"

namespace magister {

struct Linear;
class ThreadPool;

enum class QuantType { kNone, kInt8, kInt4 };

// group: 32, 64, 128, or 0 for one scale per output. Groups are counted from column 0 of the WHOLE tensor, whatever a
// shard holds. A shard that begins inside a group reads all of that group (the covering() columns) to compute the scale
// of the unsharded model, and keeps its own columns. So every split gives the unsharded weights. With group 0 a shard
// of o_proj and down_proj reads whole rows. The last group of a row may be shorter.
struct QuantScheme {
  QuantType type = QuantType::kNone;
  std::int64_t group = 0;
  bool group_given = false;  // false: the file's codes are also kept if they are narrower or have other groups

  bool on() const { return type != QuantType::kNone; }
  std::int64_t bits() const { return type == QuantType::kInt8 ? 8 : 4; }
  std::int64_t rows_a_word() const { return 32 / bits(); }
  // The whole groups that cover `columns` of a tensor with K columns.
  IndexRange covering(IndexRange columns, std::uint64_t K) const;
  // Inputs of the first group (with group 0: of the first word) that precede `column`.
  std::int64_t lead(std::uint64_t column) const;
  // Number of 32-bit words, and of scales, of one output that holds `columns`.
  std::int64_t words(IndexRange columns) const;
  std::int64_t scales(IndexRange columns) const;
  // Bytes in memory of a quantised weight with N outputs. offsets: with zero points or minima.
  std::uint64_t bytes(std::int64_t N, IndexRange columns, bool offsets = false) const;
  // True if codes of a file are kept. Without a given group, all codes that are not wider are kept: wider codes of our
  // own would cost memory and lose accuracy. With a given group, only codes of the same width and group are kept.
  bool keeps(const CodeFormat& codes) const {
    return on() && (group_given ? codes.bits == bits() && codes.group == group : codes.bits <= bits());
  }
  // The scheme of kept codes.
  QuantScheme of(const CodeFormat& codes) const {
    return {codes.bits == 8 ? QuantType::kInt8 : QuantType::kInt4, codes.group, group_given};
  }

  bool operator==(const QuantScheme&) const = default;
};

// ("int8", 128) gives the scheme; "none" gives no quantisation. Throws Error(kConfig) for other names and groups.
QuantScheme quant_scheme(const std::string& type, std::int64_t group);

// plain: [N, columns of `covering`] f32; `columns` are those that stay. The bias is passed on. int8: scale = absmax /
// 127, q in [-127, 127]. int4: q in [-8, 7]. The int4 scale, which may be negative, gives the largest weight the code
// -8 or 7, or is the least-squares step from the better of these two; the one with the least squared error is taken.
// Rounding is to nearest, ties to even. Throws Error(kData) if a weight is not finite. A pool's threads share the rows;
// the bits do not depend on their number.
Linear quantize(const Linear& plain, const QuantScheme& scheme, IndexRange columns, IndexRange covering,
                ThreadPool* pool = nullptr);
// The same for all columns of an unsharded weight.
Linear quantize(const Linear& plain, const QuantScheme& scheme);

}  // namespace magister
