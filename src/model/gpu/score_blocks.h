// Attention of prompts where no library's attention computes the scores: capped ones and ALiBi; in f32 and on the host
// also windows in chunks and sinks. A block of queries at a time, with explicit scores in double, so that a prompt may
// be cut anywhere.
// Legend: H query heads of this shard, Lq queries, Lk keys, E head_dim, V numbers of a head's values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/layer_shape.h"

namespace magister::gpu {

// Numbers of a layer's heads that join its scores, f32 [H] on the device; undefined: none.
struct ScoreTerms {
  at::Tensor sinks_H{};  // one more score, which has no value
  at::Tensor alibi_H{};  // LayerShape::alibi_slopes
};
ScoreTerms score_terms(const LayerShape& shape, const at::Tensor& sinks_H, at::Device device);

// Queries per block, and the number of f64 copies of their scores that are in memory at a time, for plans.
constexpr std::int64_t kCappedQueries = 128;
constexpr std::int64_t kCappedCopies = 3;

// True if a layer's prompts are computed here unless flash attention takes them.
bool needs_score_blocks(const LayerShape& shape, bool has_sinks);

// q [Lq, H, E], k [Lk, H, E] and v [Lk, H, V] -> [Lq, H, V] in q's dtype. The queries are the last ones of the keys.
at::Tensor attend_in_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape,
                            const ScoreTerms& terms);

}  // namespace magister::gpu
