// AltUp, Laurel and sparse gates in training, in operations that autograd differentiates. The formulas are those of
// model/cpu/altup.h and FeedForward::thin(); the gradients are those of transformers' own operations.
// Legend: T rows of a packed batch, A vectors of a token's stream, D hidden, F MLP columns, P numbers of a vector by
// layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"

namespace magister {

// [T, D] -> [T, A, D]: the embeddings, and their products with each of A - 1 weights, with the embeddings' mean square.
at::Tensor spread_stream(const at::Tensor& hidden_TD, std::span<const at::Tensor> projections, bool bf16);
// [T, A, D] -> [T, D]: the mean of the first vector and the products of the others, with the first one's mean square.
at::Tensor join_stream(const at::Tensor& streams_TAD, std::span<const at::Tensor> unembeddings, bool bf16);

// clip: true for passes that are differentiated, where coefficients are clipped to +-AltUpConfig::coef_clip. Those of
// predictions have their gradients in any case, because the optimizer clips the weights themselves; those of
// corrections have none beyond the limit.
at::Tensor predicted_stream(const at::Tensor& streams_TAD, const LayerWeights& weights, const ModelConfig& config,
                            const LayerShape& shape, bool clip);
// block_TD: what the layer's blocks have made of the active vector. vectors_TP: see TrunkPass.
at::Tensor corrected_stream(const at::Tensor& predicted_TAD, const at::Tensor& block_TD, const at::Tensor& vectors_TP,
                            const LayerWeights& weights, const ModelConfig& config, const LayerShape& shape, bool clip);

// norm(output(act(gate(stream)) * vector)): a layer's addend from its vectors. Source: transformers'
// Gemma4TextDecoderLayer.
at::Tensor added_by_vectors(const at::Tensor& stream_TD, const at::Tensor& vectors_TP, const LayerWeights& weights,
                            const LayerShape& shape);

// The stream after attention: (hidden + x + norm(right(left(x)))) / sqrt(2), where x is attention's normed input.
at::Tensor with_laurel(const at::Tensor& hidden_TD, const at::Tensor& normed_TD, const LayerWeights& weights,
                       const LayerShape& shape);

// max(0, gate - (mean + c * deviation)) of each row, where the deviation is over all columns.
at::Tensor sparse_gates(const at::Tensor& gate_TF, double cutoff);

}  // namespace magister
