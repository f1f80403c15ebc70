// TailSampler: an unbiased sample of the tokens that are not kept of a row of logits. The probabilities of these tokens
// are lined up in the order of ids, up to the mass of the tail; draw n of d is the token at (n + u) / d of this line,
// with one uniform number u per row (systematic sampling). A token of probability p is then drawn d p / tail times on
// average, and its weight, tail / d per draw, gives p.
// The head's product is computed a second time, slice by slice of the vocabulary, and no [T, V] tensor of logits is
// made on a CPU. Several shards first exchange the mass that each holds, which costs a third product.
// Legend: T rows, D hidden size, V vocabulary, k kept entries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/transformer.h"

namespace magister {

class TailSampler {
 public:
  // draws: per row, at least 1. head, group and pool are kept by reference. Local.
  TailSampler(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t draws);

  // logits: from LogitReducer for the same rows. uniforms_T: one number in [0, 1) per row. Returns i32 [T, draws], CPU,
  // ascending in a row, without the row's kept entries. If tail_mass is 0, the draws have no weight and the ids no
  // meaning. A row's draws depend only on the row. The result is replicated. Collective over the group.
  at::Tensor sample(const at::Tensor& hidden_TD, const ReducedLogits& logits, std::span<const double> uniforms_T) const;

 private:
  struct Row;
  // Goes over this shard's part of the vocabulary; each row's mass is added to its previous value.
  void walk(const at::Tensor& hidden_TD, std::vector<Row>& rows) const;
  // Decides which draws are this shard's, by the shards' masses. Collective over the group.
  void divide_draws(const at::Device& device, std::vector<Row>& rows) const;
  void walk_tile(const float* hidden, std::span<Row> rows, float* scratch) const;
  void add_slice(const float* logits, std::int64_t columns, std::int64_t first_id, Row& row) const;

  const LmHead& head_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  std::int64_t draws_;
  std::vector<Linear> slices_;  // the head in slices of rows; empty on a GPU
};

}  // namespace magister
