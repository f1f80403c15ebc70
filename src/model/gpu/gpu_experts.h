// A mixture of experts on a GPU: the device computes every token's choice, the host groups tokens by expert, each
// expert multiplies its own tokens, and the outputs are summed.
// Legend: T packed tokens, D hidden, X experts, k experts per token.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "magister/device/launch.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// The k experts of each token, ascending (i32), and their weights (f32), on the device: [T, k] each. logits_TX: f32,
// contiguous.
struct GpuRoutes {
  at::Tensor experts_Tk, weights_Tk;
};
GpuRoutes choose_experts(const at::Tensor& logits_TX, const LayerShape& shape, const Queue& queue);

// normed_TD in the activations' dtype -> [T, D] in the dtype that `multiply` returns, partial over the shards. Products
// round to that dtype, and so does the sum over a token's experts. multiply: rows [n, D] through one expert -> [n, D].
// If the bits of its rows do not depend on the other rows, the same holds for the result. Waits for the device once, to
// read the choice.
at::Tensor run_experts(const GpuLayer& layer, const at::Tensor& normed_TD,
                       const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                       const Queue& queue);

}  // namespace magister::gpu
