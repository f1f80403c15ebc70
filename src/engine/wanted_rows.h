// What is read of a row of logits when only some tokens matter (a judge's verdicts): their logits and the log-sum-exp of the whole row, found
// where the logits are and shard by shard, so that neither a row nor a part of one leaves its device.
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
  double logsumexp = 0;       // nats; NaN where a logit of the row is not finite
};

// logits_Rv: f32, contiguous, of this shard's part of the head, where the model is. wanted: the tokens of each row, equal on all shards. On CPUs a
// row that one shard has whole is summed in double in the order of ids; shards' sums are added in their order, so the result is the same on
// all of them. Waits for the device. Collective over the group.
std::vector<WantedRow> read_wanted(const at::Tensor& logits_Rv, const std::vector<std::span<const TokenId>>& wanted,
                                   const LmHead& head, ProcessGroup& group);

}  // namespace magister
