// Latent attention (MLA) in training: queries, keys and values of all heads, as autograd follows them.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"
#include "train/layer_weights.h"

namespace magister {

// [T, H, E] f32 each. Values that have fewer numbers than keys are followed by zeros, which attention leaves zero.
struct LatentHeads {
  at::Tensor q_THE, k_THE, v_THE;
  LayerShape shape;  // of attention over them: every head has keys and values of its own
};
// input_TD: f32, normed. rope: rows of all tokens. interleaved: weights hold rotated rows as pairs.
LatentHeads latent_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                         const RopeTable& rope, bool interleaved);

}  // namespace magister
