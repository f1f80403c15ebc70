// Linear attention by the gated delta rule in training, as autograd follows it; see DeltaConfig. On CPUs.
// Legend: T packed tokens, D hidden, H value heads, V numbers of a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"

namespace magister {

// Returns the outputs of all heads after their norm and gate, [T, H V] f32. input_TD: f32, normed. Every sequence of
// cu_seqlens begins with states of zeros.
at::Tensor delta_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                       const std::vector<std::int64_t>& cu_seqlens);

// Bytes per token that a layer with linear attention keeps until its backward pass, besides the rows that all layers
// keep.
double delta_bytes(const ModelConfig& config);
// The same that its operations read and write meanwhile: gradients of heads, of a piece's squares and of channels.
double delta_passing_bytes(const ModelConfig& config);

}  // namespace magister
