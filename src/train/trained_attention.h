// Attention of a layer up to its last product, as autograd follows it: the products of queries, keys and values, their
// norms and rotations, scores, and the gate of the outputs.
// Legend: T packed tokens, D hidden, H heads, K KV heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"
#include "magister/train/trunk.h"
#include "train/latent_heads.h"
#include "train/layer_weights.h"
#include "train/sequence_attention.h"

namespace magister {

// Inputs of one micro-batch's attention besides weights.
struct AttentionInputs {
  const TrainBatch& batch;
  const SequencePlan* plan;  // for GPU code, of the layer's chunks if it has them; nullptr: CPU code
  const RopeTable& rope;
  bool interleaved;
  bool v_norm;
  VisibleKeys& visible;       // of layers with an indexer; filled by the layer that chooses
  at::Tensor &k_TKE, &v_TKE;  // of this layer, or for a layer without its own those of another
};

// Returns the outputs of all heads, [T, H value_dim]. input_TD: normed; from: where GPU code finds these rows again.
at::Tensor attention_heads(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                           const LayerShape& shape, const AttentionInputs& in);

}  // namespace magister
