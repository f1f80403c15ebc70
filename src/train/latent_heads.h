// Latent attention (MLA) in training: queries, keys and values of all heads, as autograd follows them, and the keys
// that an indexer chooses, which has no gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"
#include "train/layer_weights.h"
#include "train/sequence_attention.h"

namespace magister {

struct LatentHeads {
  at::Tensor q_THE, k_THE, v_THV;  // f32; V numbers of a head's values
  LayerShape shape;                // of attention over them: every head has keys and values of its own
};

// input_TD: f32, normed. rope: rows of all tokens. interleaved: weights hold rotated rows as pairs. visible: if it is
// empty, a layer with an indexer chooses keys and fills it.
LatentHeads latent_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                         const RopeTable& rope, bool interleaved, std::span<const std::int64_t> cu_seqlens,
                         VisibleKeys& visible);

}  // namespace magister
