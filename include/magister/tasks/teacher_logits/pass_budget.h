// How many tokens a pass may have on a GPU, measured before the work: a unit that is larger is run in parts from the start.
#pragma once

#include <cstdint>

#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"

namespace magister {

// Runs two passes of the layers of 2,048 and 4,096 tokens, reads the peaks of their memory and draws the line through them. `requested`
// where that fits, and where it is no more than the larger of them; on the host, whose memory is not the allocator's, always. The same on
// every shard. Collective over the group.
std::int64_t measured_token_budget(Transformer& model, const LogitReducer& reducer, std::int64_t requested);

// The line: peaks of passes of `few` and `many` tokens -> tokens of a pass that takes `free` bytes, at least `few`.
std::int64_t token_budget_of(std::int64_t few, std::uint64_t few_bytes, std::int64_t many, std::uint64_t many_bytes,
                             std::uint64_t free);
// Tokens whose hidden states and kept numbers stand beside a tile of logits in `free` bytes.
std::int64_t tokens_of_head(std::int64_t hidden_size, const LogitReducer& reducer, std::uint64_t free);

}  // namespace magister
