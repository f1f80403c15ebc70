// A mixture of experts on a GPU: the device computes every token's choice, tokens are grouped by expert, each expert
// multiplies its own tokens, and the outputs are summed. Shared experts are every token's. PromptExperts
// (prompt_experts.h) and DecoderExperts (decoder_experts.h) group on the device; run_experts() groups on the host, to
// compare with.
// Legend: T packed tokens, D hidden, R routes per token: k of X experts, and the shared ones; L logits of a token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/device/launch.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// The experts of each token (i32), the chosen ones ascending and then the shared ones, and their weights (f32), on the
// device: [T, R] each. logits_TL: f32, contiguous.
struct GpuRoutes {
  at::Tensor experts_TR, weights_TR;
};
GpuRoutes choose_experts(const at::Tensor& logits_TL, const GpuLayer& layer, const Queue& queue);
// The same into existing tensors. Queued.
void choose_experts(const at::Tensor& logits_TL, const GpuLayer& layer, const GpuRoutes& into, const Queue& queue);

// The inputs of experts: the rows of the tokens of routes, times the weights of the routes if there are weights.
// route_N: indices into [T, R]; routes: R. Queued.
at::Tensor gather_tokens(const at::Tensor& normed_TD, const at::Tensor& route_N, const at::Tensor& weights_TR,
                         std::int64_t routes, const Queue& queue);
// The sum over a token's experts, [T, D] in rows_ND's dtype; weights_TR may be undefined. Queued.
at::Tensor sum_experts(const at::Tensor& rows_ND, const at::Tensor& row_of_TR, const at::Tensor& weights_TR,
                       const Queue& queue);

// The routes of a pass, sorted by expert: the route of each place, [T R], and the place of each route, i32 on the
// device; and the first place of each expert, shared ones among them, with the end of the last, on the host.
struct GpuExpertGroups {
  at::Tensor route_N, place_of_TR;
  std::vector<std::int64_t> first;
};
// The second half of run_experts(). weights_TR: of the routes. Queued.
at::Tensor multiply_by_expert(const GpuLayer& layer, const at::Tensor& normed_TD, const at::Tensor& weights_TR,
                              const GpuExpertGroups& groups,
                              const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                              const Queue& queue);

// normed_TD in the activations' dtype -> [T, D] in the dtype that `multiply` returns, partial over the shards. Products
// round to that dtype, and so does the sum over a token's experts. router_TD: the router's input. multiply: rows [n, D]
// through one expert -> [n, D]. If the bits of its rows do not depend on the other rows, the same holds for the result.
// Waits for the device once, to read the choice, which the host sorts. PromptExperts is compared with it when a model
// is loaded.
at::Tensor run_experts(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD,
                       const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                       const Queue& queue);

}  // namespace magister::gpu
