// Quantised weights: int8 or int4, one scale a group of inputs of an output. Weights only: the activations and sums stay f32.
// Made while loading they are symmetric, weight = q * scale, exact in f32, because a scale is a bf16 number (8 significant
// bits and the range of f32; an f16 would lose small models' scales below 6e-5). Codes that the file holds already are kept
// with their scales and zeros or minima (CodeFormat): the weights are the very f32 that the file stands for.
// Bytes a weight: int8 1 + 2/group, int4 0.5 + 2/group, and 2/group more with zeros or minima; outputs are filled up to 48 and inputs to whole groups of a word.
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

// group: 32, 64, 128, or 0: one scale an output. Groups are counted from column 0 of the WHOLE tensor, whatever a shard
// holds: a shard that begins inside a group reads all of that group (the covering() columns) to compute the scale that the
// unsharded model has, and keeps its own columns. So every split works and gives the unsharded weights; with group 0 a
// shard of o_proj and down_proj reads whole rows. The last group of a row may be shorter.
struct QuantScheme {
  QuantType type = QuantType::kNone;
  std::int64_t group = 0;
  bool group_given = false;  // false: codes of the file that are narrower or in other groups are kept, too

  bool on() const { return type != QuantType::kNone; }
  std::int64_t bits() const { return type == QuantType::kInt8 ? 8 : 4; }
  std::int64_t rows_a_word() const { return 32 / bits(); }
  // The whole groups around `columns` of a tensor with K of them.
  IndexRange covering(IndexRange columns, std::uint64_t K) const;
  // Inputs of the first group (of the first word for group 0) that stand before `column`.
  std::int64_t lead(std::uint64_t column) const;
  // Words of 32 bits and scales of one output that holds `columns`.
  std::int64_t words(IndexRange columns) const;
  std::int64_t scales(IndexRange columns) const;
  // Of a quantised weight with N outputs in memory; offsets: with zeros or minima.
  std::uint64_t bytes(std::int64_t N, IndexRange columns, bool offsets = false) const;
  // Whether codes of a file are kept: all that are no wider, for wider ones of our own would cost memory and lose something;
  // with a group given just these.
  bool keeps(const CodeFormat& codes) const {
    return on() && (group_given ? codes.bits == bits() && codes.group == group : codes.bits <= bits());
  }
  // That of kept codes.
  QuantScheme of(const CodeFormat& codes) const {
    return {codes.bits == 8 ? QuantType::kInt8 : QuantType::kInt4, codes.group, group_given};
  }

  bool operator==(const QuantScheme&) const = default;
};

// "int8", 128 -> the scheme; "none" -> off. Throws Error(kConfig) on other names and groups.
QuantScheme quant_scheme(const std::string& type, std::int64_t group);

// plain: [N, columns of `covering`] f32; `columns` are those that stay. The bias goes along. int8: scale = absmax / 127, q in
// [-127, 127]. int4: q in [-8, 7]; the scale, which may be negative, gives the largest weight the code -8 or 7, or is the
// least-squares step from the better of these, whichever has the least squared error. To nearest, ties to even.
// Throws Error(kData) when a weight is not finite.
// A pool's threads share the rows; the bits are the same.
Linear quantize(const Linear& plain, const QuantScheme& scheme, IndexRange columns, IndexRange covering,
                ThreadPool* pool = nullptr);
// All columns of an unsharded weight.
Linear quantize(const Linear& plain, const QuantScheme& scheme);

}  // namespace magister
