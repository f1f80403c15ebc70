// LogitReducer: hidden states -> what is kept of the next token's distribution, in tiles of rows x a slice of the
// vocabulary that stay in cache. Never a [T, V] tensor, never a gather of the vocabulary: with tensor parallelism each
// shard sends its candidates and four numbers a row. The merged result equals the unsharded one up to fp32 products.
// Legend: T packed tokens, D hidden, V vocabulary, v this shard's part, k kept entries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/batch.h"
#include "magister/model/matmul.h"
#include "magister/model/transformer.h"

namespace magister {

class LogitReducer {
 public:
  // top_k in [1, V]. head, group and pool are kept by reference.
  LogitReducer(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t top_k);

  // hidden_TD: f32, CPU, replicated. targets_T[t]: the token that follows row t, -1 for none (target_logprob is NaN).
  // Collective over the group; the result is replicated.
  ReducedLogits reduce(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const;

  // The slow plain twin: the whole [T, v] in fp32, log_softmax, full sort. Unsharded heads only. Local.
  static ReducedLogits reduce_reference(const LmHead& head, const at::Tensor& hidden_TD,
                                        std::span<const TokenId> targets_T, std::int64_t top_k);

  // Bytes of work memory a thread needs besides the result (for plan).
  std::uint64_t scratch_bytes() const;

 private:
  struct Shares;
  void reduce_tile(const float* hidden, std::int64_t rows, const TokenId* targets, float* scratch, std::int64_t* shares) const;
  std::int64_t row_width() const { return kNumbers + keep_; }

  static constexpr std::int64_t kNumbers = 4;  // maximum, sum, weighted sum, target logit: doubles as bits
  const LmHead& head_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  std::int64_t top_k_;
  std::int64_t keep_;        // candidates a shard keeps: top_k and a few more for ties after rounding
  std::int64_t capacity_;    // candidates a row may hold between two selections
  std::int64_t tile_rows_;
  std::vector<Linear> slices_;  // the head in slices of kSliceColumns rows
};

}  // namespace magister
