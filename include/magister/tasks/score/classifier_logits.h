// The logits of a sequence classifier or a reward model: its head reads one row of each text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/transformer.h"

namespace magister {

// Position of the token that the head reads: the first one for an encoder, else the last one that is not padding.
std::int64_t classifier_token(const std::vector<TokenId>& ids, const ModelConfig& config);
// Returns [sequences, labels], f32, on the CPU, from one pass over all sequences; the bits of a row do not depend on
// the others. share_prefixes: tokens at the begin of neighbours that are equal are computed once (CPUs only; not for
// encoders, in which every token reads all). Returns an undefined tensor if should_stop() is true; every shard calls it
// between layers. Collective over the model's group.
at::Tensor classifier_logits(Transformer& model, const std::vector<std::vector<TokenId>>& sequences,
                             bool share_prefixes, const std::function<bool()>& should_stop = {});

}  // namespace magister
