// The MLP of a layer, as autograd follows it.
// Legend: T packed tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"

namespace magister {

// Returns [T, D]. input_TD: normed; from: where GPU code finds these rows again. stream_TD: the last product goes on
// top of it, see LayerWeights::linear_onto().
at::Tensor feed_forward(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                        const LayerShape& shape, const at::Tensor& stream_TD);

}  // namespace magister
