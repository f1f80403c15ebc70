// The logits of a few tokens per row (a judge's verdicts) and the log-sum-exp of the whole row. They are computed on
// the device that has the logits, shard by shard, so no row or part of a row is copied.
// Legend: R rows, v this shard's part of the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/transformer.h"

namespace magister {

struct WantedRow {
  std::vector<float> logits;  // of the wanted tokens, in their order
  double logsumexp = 0;       // nats; NaN if a logit of the row is not finite
};

// logits_Rv: f32, contiguous, this shard's part of the head, on the model's device. wanted: the tokens of each row,
// equal on all shards. On CPUs a row of a single shard is summed in double in the order of ids. The shards' sums are
// added in shard order, so all shards have the same result. Waits for the device. Collective over the group.
std::vector<WantedRow> read_wanted(const at::Tensor& logits_Rv, const std::vector<std::span<const TokenId>>& wanted,
                                   const LmHead& head, ProcessGroup& group);

}  // namespace magister
