// The masks and biases of attention's scores in plain ATen code, for references and for training.
// Legend: H heads of a shard, Lq queries, Lk keys. The queries are the last Lq of Lk positions of a sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/layer_shape.h"

namespace magister {

// [Lq, Lk] bool on the device: the keys (columns) that each query sees, by the layer's window.
at::Tensor visible_keys(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device);

// [L, L] bool: the keys that each query of a sequence sees where an indexer chooses top_k of them, see IndexerConfig;
// undefined if the sequence has no more keys. q_LHE, k_LE and weights_LH are the indexer's, f32, after the norm and the
// rotation. It has no gradient. Memory in addition to the result: two f32 and an i64 number for each pair of tokens.
at::Tensor chosen_keys(const at::Tensor& q_LHE, const at::Tensor& k_LE, const at::Tensor& weights_LH,
                       std::int64_t top_k);

// [H, Lq, Lk] f32 on the device: ALiBi's terms of the scores. The layer must have ALiBi.
at::Tensor alibi_terms(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device);

// The norm over each head of q or k in plain ATen code: a layer norm if there is a bias.
// x_THE: [T, heads, E]; weight_E and bias_E: [E].
at::Tensor head_layer_norm(const at::Tensor& x_THE, const at::Tensor& weight_E, const at::Tensor& bias_E, double eps);

}  // namespace magister
