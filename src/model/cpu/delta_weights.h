// Weights of linear attention (DeltaConfig) on a CPU, besides its large products.
// Legend: C channels of queries, keys and values, H value heads of this shard, E key_dim, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/cpu/matmul.h"

namespace magister {

struct DeltaWeights {
  at::Tensor conv_WC;         // f32, the last row is that of the token itself
  Linear steps;               // [2H, D] f32: products of the heads' strengths, then of their decays
  at::Tensor rate_H, bias_H;  // see DeltaParts
  at::Tensor norm_V;          // f32 [value_dim]
  // f32 [E]: factors by which an RMS norm divides a key by its length, and a query by its length and by sqrt(E).
  at::Tensor key_scale_E{}, query_scale_E{};
};

}  // namespace magister
