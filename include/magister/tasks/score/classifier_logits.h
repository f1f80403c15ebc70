// What a sequence classifier or a reward model says of texts: the one row of each that its head reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/transformer.h"

namespace magister {

// The token that stands for a text: an encoder's first, else the last that is not padding.
std::int64_t classifier_token(const std::vector<TokenId>& ids, const ModelConfig& config);
// [sequences, labels] f32, CPU, of one pass over all of them; a row's bits do not depend on the others. share_prefixes: tokens that neighbours
// begin with alike are computed once (on CPUs; encoders have none, since every token reads all). Undefined: should_stop() said yes, asked between
// layers on every shard alike. Collective over the model's group.
at::Tensor classifier_logits(Transformer& model, const std::vector<std::vector<TokenId>>& sequences,
                             bool share_prefixes, const std::function<bool()>& should_stop = {});

}  // namespace magister
