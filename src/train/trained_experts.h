// A mixture of experts that autograd follows: the choice is that of inference (model/routes.h) and has no gradient, the
// probabilities of the chosen experts have one, and every expert multiplies only its own tokens. Source: transformers'
// Mixtral, Qwen3-MoE, OLMoE and gpt-oss.
// Legend: T packed tokens, D hidden, F an expert's columns.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"

namespace magister {

// act(gate) * up; both contiguous. The layer decides: SiLU, GELU, or gpt-oss's clamped SwiGLU.
at::Tensor gated(const at::Tensor& gate_TF, const at::Tensor& up_TF, const LayerShape& shape);

// Returns [T, D]. A token's sum runs over its experts in ascending order. Experts that no token chose take no part:
// their leaves have no gradient.
// router_TD: what the router reads.
at::Tensor mixture_of_experts(const at::Tensor& input_TD, const at::Tensor& router_TD, const LayerWeights& weights,
                              const LayerShape& shape);

// Experts of a layer that has an MLP, too (Gemma 4): they read the stream as it is, through norms of their own. Returns
// their normed sum, [T, D].
at::Tensor experts_beside(const at::Tensor& stream_TD, const LayerWeights& weights, const LayerShape& shape);

}  // namespace magister
