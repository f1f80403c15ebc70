// LogitReducer: computes the kept part of the next token's distribution from hidden states, in tiles of rows x a slice
// of the vocabulary that stay in cache. It never makes a [T, V] tensor and never gathers the vocabulary: with tensor
// parallelism each shard sends its candidates and four numbers per row. The merged result equals the unsharded one up
// to rounding of the fp32 products.
// Legend: T packed tokens, D hidden, V vocabulary, v this shard's part, k kept entries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/device/gpu.h"
#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/transformer.h"

namespace magister {

class LogitReducer {
 public:
  // top_k in [1, V]. head, group and pool are kept by reference. Collective over the group.
  LogitReducer(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t top_k);

  // hidden_TD: output of Transformer::forward, replicated. targets_T[t]: the token that follows row t; -1 for none
  // (then target_logprob is NaN). The result is replicated. Collective over the group.
  ReducedLogits reduce(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const {
    return finish(start(hidden_TD, targets_T));
  }

  // The same in two steps. On a GPU start() only queues the work and the copy to the host, and finish() waits for it,
  // so the device has its next unit before this unit's rows are finished. start() is collective over the group,
  // finish() is local.
  struct Started {
    at::Tensor shares_STW;  // i64, CPU: numbers and candidates of every shard, complete when `ready` is done
    std::vector<TokenId> targets_T;
    GpuEvent ready;
  };
  Started start(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const;
  ReducedLogits finish(const Started& started) const;

  // The slow reference implementation: whole [T, V] logits, log_softmax in double and a full sort. Unsharded heads
  // only. Local.
  static ReducedLogits reduce_reference(const LmHead& head, const at::Tensor& hidden_TD,
                                        std::span<const TokenId> targets_T, std::int64_t top_k);

  // Bytes of work memory per thread in addition to the result (for plan); on a GPU, bytes of the device.
  std::uint64_t scratch_bytes() const;
  // Bytes per row that are kept until the row is on the host, over all shards.
  std::uint64_t bytes_of_row() const {
    return static_cast<std::uint64_t>(common_width_ * group_.tp_size()) * sizeof(std::int64_t);
  }

 private:
  at::Tensor shares_on_cpu(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const;
  at::Tensor shares_on_gpu(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const;
  void reduce_tile(const float* hidden, std::int64_t rows, const TokenId* targets, float* scratch,
                   std::int64_t* shares) const;
  std::int64_t row_width() const { return kNumbers + keep_; }

  static constexpr std::int64_t kNumbers = 4;  // maximum, sum, weighted sum, target logit: doubles as bits
  const LmHead& head_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  std::int64_t top_k_;
  std::int64_t keep_;          // candidates that a shard keeps: top_k and a few more for ties after rounding
  std::int64_t capacity_;      // candidates that a row can hold between two selections
  std::int64_t common_width_;  // row_width() of the shard that keeps the most candidates
  std::int64_t tile_rows_;
  std::vector<Linear> slices_;  // the head in slices of kSliceColumns rows
};

}  // namespace magister
