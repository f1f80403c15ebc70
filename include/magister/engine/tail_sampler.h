// TailSampler: an unbiased sample of the tokens that a row of logits does not keep. The rest's probabilities stand one after the other in
// the order of ids, as far as the rest's mass reaches; draw n of d is the token over (n + u) / d of it, with one uniform u a row
// (systematic sampling). A token of probability p is then drawn d p / rest times in the mean, and its weight, rest / d a draw, is p.
// The head's product is made a second time, slice by slice of the vocabulary; no [T, V] of logits stands on a CPU. Shards first tell each
// other the mass that they hold, which costs a third product.
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
  // draws: of a row, at least 1. head, group and pool are kept by reference. Local.
  TailSampler(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t draws);

  // logits: of these rows, from LogitReducer. uniforms_T: in [0, 1), of each row. Returns i32 [T, draws], CPU, ascending in a row, none of
  // the row's kept entries; 0 where nothing is left (tail_mass 0). A row's draws depend on nothing but the row.
  // Collective over the group; the result is replicated.
  at::Tensor sample(const at::Tensor& hidden_TD, const ReducedLogits& logits, std::span<const double> uniforms_T) const;

 private:
  struct Row;
  // Goes over this shard's part of the vocabulary; each row's mass goes on from what it was.
  void walk(const at::Tensor& hidden_TD, std::vector<Row>& rows) const;
  void walk_tile(const float* hidden, std::span<Row> rows, float* scratch) const;
  void add_slice(const float* logits, std::int64_t columns, std::int64_t first_id, Row& row) const;

  const LmHead& head_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  std::int64_t draws_;
  std::vector<Linear> slices_;  // the head in slices of rows; none on a GPU
};

}  // namespace magister
