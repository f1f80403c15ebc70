// The masks and biases of attention's scores in plain ATen code, for references and for training.
// Legend: H heads of a shard, Lq queries, Lk keys. The queries are the last Lq of Lk positions of a sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/layer_shape.h"

namespace magister {

// [Lq, Lk] bool on the device: the keys (columns) that each query sees, by the layer's window.
at::Tensor visible_keys(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device);

// [H, Lq, Lk] f32 on the device: ALiBi's terms of the scores. The layer must have ALiBi.
at::Tensor alibi_terms(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device);

// The norm over each head of q or k in plain ATen code: a layer norm if there is a bias.
// x_THE: [T, heads, E]; weight_E and bias_E: [E].
at::Tensor head_layer_norm(const at::Tensor& x_THE, const at::Tensor& weight_E, const at::Tensor& bias_E, double eps);

}  // namespace magister
