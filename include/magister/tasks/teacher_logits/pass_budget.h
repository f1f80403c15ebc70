// The largest number of tokens of a pass on a GPU, measured before the work starts, so that larger units are run in
// parts from the start.
#pragma once

#include <cstdint>

#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"

namespace magister {

// Runs the layers on 2,048 and on 4,096 tokens, and extrapolates the peaks of memory linearly. Returns at most
// `requested`; it returns `requested` without a measurement if that is at most 4,096, or on the host. The result is the
// same on every shard. Collective over the group.
std::int64_t measured_token_budget(Transformer& model, const LogitReducer& reducer, std::int64_t requested);

// The linear extrapolation: from the peaks of passes of `few` and `many` tokens to the number of tokens whose pass
// takes `free` bytes, at least `few`.
std::int64_t token_budget_of(std::int64_t few, std::uint64_t few_bytes, std::int64_t many, std::uint64_t many_bytes,
                             std::uint64_t free);
// Number of tokens whose hidden states and kept numbers fit into `free` bytes together with a tile of logits.
std::int64_t tokens_of_head(std::int64_t hidden_size, const LogitReducer& reducer, std::uint64_t free);

}  // namespace magister
