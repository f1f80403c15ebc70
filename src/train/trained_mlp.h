// The MLP of a layer, and what vectors by layer add to the stream, as autograd follows them.
// Legend: T packed tokens, D hidden, P numbers of a vector by layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"

namespace magister {

// Returns [T, D]. input_TD: normed; from: where GPU code finds these rows again. stream_TD: the last product goes on
// top of it, see LayerWeights::linear_onto().
at::Tensor feed_forward(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                        const LayerShape& shape, const at::Tensor& stream_TD);

// Returns the product of a token's vector for this layer, [T, D]. Source: transformers' Gemma4TextDecoderLayer.
at::Tensor added_by_vectors(const at::Tensor& stream_TD, const at::Tensor& vectors_TP, const LayerWeights& weights,
                            const LayerShape& shape);

}  // namespace magister
