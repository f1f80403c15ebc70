// A mixture of experts as a GPU runs it: every token's choice on the device, tokens grouped by expert on the host, each expert's products
// over its own tokens, and the sum. Legend: T packed tokens, D hidden, X experts, k experts a token.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "magister/device/launch.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// The k experts of each token, ascending (i32), and their weights (f32), on the device: [T, k] each. logits_TX: f32, contiguous.
struct GpuRoutes {
  at::Tensor experts_Tk, weights_Tk;
};
GpuRoutes choose_experts(const at::Tensor& logits_TX, const LayerShape& shape, const Queue& queue);

// normed_TD in the activations' type -> [T, D] in the type that `multiply` gives, partial over the shards: products round to that type, the sum
// over a token's experts once more. multiply: rows [n, D] through one expert -> [n, D], of which a row's bits do not depend on the others; so do then
// the result's. Waits for the device once, to read the choice.
at::Tensor run_experts(const GpuLayer& layer, const at::Tensor& normed_TD,
                       const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                       const Queue& queue);

}  // namespace magister::gpu
