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
#include "magister/device/gpu.h"
#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/transformer.h"

namespace magister {

class LogitReducer {
 public:
  // top_k in [1, V]. head, group and pool are kept by reference. Collective over the group.
  LogitReducer(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t top_k);

  // hidden_TD: as Transformer::forward gives it, replicated. targets_T[t]: the token that follows row t, -1 for none
  // (target_logprob is NaN). Collective over the group; the result is replicated.
  ReducedLogits reduce(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const {
    return finish(start(hidden_TD, targets_T));
  }

  // The same in two steps: on a GPU start() only queues work and the copy to the host, and finish() waits for it, so that the device
  // has its next unit before this one's rows are made. start() is collective over the group, finish() is local.
  struct Started {
    at::Tensor shares_STW;  // i64, CPU: the numbers and candidates of every shard, there when `ready` is done
    std::vector<TokenId> targets_T;
    GpuEvent ready;
  };
  Started start(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const;
  ReducedLogits finish(const Started& started) const;

  // The slow reference implementation: the whole [T, v] in fp32, log_softmax, full sort. Unsharded heads only. Local.
  static ReducedLogits reduce_reference(const LmHead& head, const at::Tensor& hidden_TD,
                                        std::span<const TokenId> targets_T, std::int64_t top_k);

  // Bytes of work memory a thread needs besides the result (for plan); on a GPU of the device.
  std::uint64_t scratch_bytes() const;
  // Bytes of what is kept of a row until it is on the host, of all shards.
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
  std::int64_t keep_;          // candidates a shard keeps: top_k and a few more for ties after rounding
  std::int64_t capacity_;      // candidates a row may hold between two selections
  std::int64_t common_width_;  // row_width() of the shard that keeps most candidates
  std::int64_t tile_rows_;
  std::vector<Linear> slices_;  // the head in slices of kSliceColumns rows
};

}  // namespace magister
