// The order of the kernels and their buffers; see prompt_experts.h.
#include "model/gpu/prompt_experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "model/gpu/dequantize_experts_kernel.h"
#include "model/gpu/expert_product_kernel.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/prompt_routes_kernels.h"
#include "model/gpu/prompt_rule.h"

namespace magister::gpu {
namespace {

// Experts of a slice, whose weights have so many numbers each.
std::int64_t slice_experts(std::int64_t numbers, std::int64_t slice_numbers, std::int64_t X) {
  return std::clamp<std::int64_t>(slice_numbers / numbers, 1, X);
}

const ExpertPlace* places_of(const ExpertProducts& products) {
  return reinterpret_cast<const ExpertPlace*>(data<std::uint8_t>(products.places_X));
}

// Converts the codes of experts [begin, end) to `into`, [experts, N, K]; 8-bit floats without the scales of their
// outputs, so that a number is exact.
void convert(const ExpertProducts& products, std::int64_t begin, std::int64_t end, const at::Tensor& into,
             const Queue& queue) {
  const ExpertPlace* const places = places_of(products) + begin;
  const auto count = static_cast<int>(end - begin);
  if (products.bits == 8 && products.weight.offset == kFloatCodes)
    return start(WidenExperts{into.size(1) * into.size(2), places, count, data<Bf16>(into)}, queue);
  with_type(into.scalar_type(), [&](auto number) {
    using A = decltype(number);
    const auto run = [&]<int kBits>() {
      start(DequantizeExperts<kBits, A>{{products.weight, data<A>(into)}, places, count}, queue);
    };
    products.bits == 8 ? run.template operator()<8>() : run.template operator()<4>();
  });
}

}  // namespace

PromptExperts::PromptExperts(const GpuWeights& weights, std::int64_t slice_numbers)
    : weights_(&weights),
      widths_(expert_widths(weights.config, weights.partition)),
      slice_numbers_(slice_numbers),
      layers_(weights.layers.size()) {
  if (!groups_prompts(widths_, weights.fp8 ? at::kFloat8_e4m3fn : weights.dtype)) return;
  // Codes become rows that begin at multiples of 16 bytes.
  const auto are_multiplied = [](const std::optional<ExpertProducts>& products) {
    return products && (products->bits < 16 || products->aligned);
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (weights.layers[i].experts.empty()) continue;
    const auto up = joined_experts(weights.layers[i], &GpuExpert::gate_up_proj, weights.device),
               down = joined_experts(weights.layers[i], &GpuExpert::down_proj, weights.device);
    if (are_multiplied(up) && are_multiplied(down)) layers_[i] = {*up, *down};
  }
}

const PromptExperts::Layer& PromptExperts::own(const GpuLayer& layer) const {
  const auto number = static_cast<std::size_t>(&layer - weights_->layers.data());
  MAGISTER_ASSERT(number < layers_.size());
  return layers_[number];
}

bool PromptExperts::has(const GpuLayer& layer) const { return own(layer).up.places_X.defined(); }

PromptExperts::Sorted PromptExperts::sort(const at::Tensor& experts_TR, const Queue& queue) const {
  const auto T = static_cast<int>(experts_TR.size(0)), k = static_cast<int>(widths_.per_token),
             S = static_cast<int>(widths_.shared), X = static_cast<int>(widths_.experts),
             B = PromptRoutes::blocks_of(T), I = most_expert_items(T * k, X, ExpertProduct::kRows);
  const auto ints = [&](std::int64_t rows, std::int64_t columns) {
    return at::empty({rows, columns}, experts_TR.options());
  };
  const at::Tensor counts_BX = ints(B, X), first_X = ints(1, X);
  Sorted sorted{ints(T, k + S), ints(T * static_cast<std::int64_t>(k + S), 1), first_X, ints(I, 3)};
  const PromptRoutes routes{data<std::int32_t>(experts_TR), T, k, S, X};
  start(CountRoutes{routes, data<std::int32_t>(counts_BX)}, queue);
  start(PlaceExperts{data<std::int32_t>(counts_BX), data<std::int32_t>(first_X), data<ExpertRows>(sorted.items_I3), B,
                     X, ExpertProduct::kRows, I},
        queue);
  start(PlaceRoutes{routes, data<std::int32_t>(counts_BX), data<std::int32_t>(first_X),
                    data<std::int32_t>(sorted.place_of_TR), data<std::int32_t>(sorted.route_N)},
        queue);
  return sorted;
}

// Waits for the device to read X numbers.
GpuExpertGroups PromptExperts::groups_of(const Sorted& sorted) const {
  const std::int64_t T = sorted.place_of_TR.size(0);
  GpuExpertGroups groups{sorted.route_N.view({-1}), sorted.place_of_TR, {}};
  const at::Tensor first_X = sorted.first_X.cpu();
  for (std::int64_t x = 0; x < widths_.experts; ++x) groups.first.push_back(data<std::int32_t>(first_X)[x]);
  for (std::int64_t s = 0; s <= widths_.shared; ++s) groups.first.push_back(T * (widths_.per_token + s));
  return groups;
}

template <typename Kernel>
void PromptExperts::multiply_with(const ExpertProducts& products, const at::Tensor& x, const at::Tensor& route_N,
                                  const Sorted& sorted, const at::Tensor& out_NM, const Queue& queue) const {
  using A = typename Kernel::Number;
  const std::int64_t N = products.weight.N, K = products.weight.K, X = widths_.experts;
  Kernel kernel{{data<A>(x), K, data<std::int32_t>(route_N), static_cast<int>(widths_.routes()), places_of(products),
                 data<ExpertRows>(sorted.items_I3), static_cast<int>(sorted.items_I3.size(0)),
                 products.weight.row_bytes, products.weight.N, products.weight.K, out_NM.data_ptr(),
                 out_NM.scalar_type() == at::kFloat}};
  if (products.bits == 16) return start(kernel, queue);
  const std::int64_t experts = slice_experts(N * K, slice_numbers_, X);
  const at::Tensor slice_XNK = at::empty({experts, N, K}, x.options());
  kernel.weight_bytes = static_cast<std::int64_t>(sizeof(A)) * K;
  for (std::int64_t begin = 0; begin < X; begin += experts) {
    const std::int64_t end = std::min(begin + experts, X);
    convert(products, begin, end, slice_XNK, queue);
    kernel.slice = {data<unsigned char>(slice_XNK), static_cast<int>(begin), static_cast<int>(end)};
    start(kernel, queue);
  }
}

void PromptExperts::multiply_all(const ExpertProducts& products, const at::Tensor& x, const at::Tensor& route_N,
                                 const Sorted& sorted, const at::Tensor& out_NM, const Queue& queue) const {
  MAGISTER_ASSERT(x.is_contiguous() && out_NM.is_contiguous() && x.size(1) == products.weight.K &&
                  out_NM.size(1) == products.weight.N);
  x.scalar_type() == at::kFloat ? multiply_with<FloatExpertProduct>(products, x, route_N, sorted, out_NM, queue)
                                : multiply_with<ExpertProduct>(products, x, route_N, sorted, out_NM, queue);
}

at::Tensor PromptExperts::run(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD,
                              const Multiply& multiply, const Queue& queue) const {
  const GpuRoutes routes = choose_experts(product(layer.router, router_TD, at::kFloat, queue), layer, queue);
  const Sorted sorted = sort(routes.experts_TR, queue);
  return has(layer) ? multiply_at_once(layer, normed_TD, routes.weights_TR, sorted, multiply, queue)
                    : multiply_by_expert(layer, normed_TD, routes.weights_TR, groups_of(sorted), multiply, queue);
}

at::Tensor PromptExperts::multiply_at_once(const GpuLayer& layer, const at::Tensor& normed_TD,
                                           const at::Tensor& weights_TR, const Sorted& sorted, const Multiply& multiply,
                                           const Queue& queue) const {
  const Layer& products = own(layer);
  const std::int64_t T = normed_TD.size(0), D = widths_.hidden, R = widths_.routes(), N = T * widths_.per_token;
  // Weighed inputs are rows of their own, those of shared experts among them.
  const bool weighs = widths_.weighs_inputs;
  const at::Tensor inputs = weighs ? gather_tokens(normed_TD, sorted.route_N, weights_TR, R, queue) : normed_TD,
                   middle_NF = at::empty({N, widths_.mlp}, normed_TD.options());
  {
    const at::Tensor up_NF = at::empty({N, widths_.up}, normed_TD.options());
    multiply_all(products.up, inputs, weighs ? at::Tensor() : sorted.route_N, sorted, up_NF, queue);
    activate(function_of(layer), up_NF, {middle_NF}, queue);
  }
  const auto type = layer.experts[0].down_proj.float_out ? at::kFloat : normed_TD.scalar_type();
  at::Tensor rows_ND = at::empty({T * R, D}, normed_TD.options().dtype(type));
  multiply_all(products.down, middle_NF, {}, sorted, rows_ND.narrow(0, 0, N), queue);
  for (std::int64_t s = 0; s < widths_.shared; ++s) {
    const std::int64_t first = N + s * T;
    rows_ND.narrow(0, first, T)
        .copy_(multiply(layer.experts[static_cast<std::size_t>(widths_.experts + s)],
                        weighs ? inputs.narrow(0, first, T) : normed_TD));
  }
  return sum_experts(rows_ND, sorted.place_of_TR, weighs ? at::Tensor() : weights_TR, queue);
}

std::uint64_t PromptExperts::token_bytes(const ExpertWidths& widths, std::uint64_t number_bytes,
                                         std::uint64_t out_bytes) {
  const auto columns = static_cast<std::uint64_t>(widths.per_token * widths.mlp) * number_bytes,
             routes = static_cast<std::uint64_t>(widths.routes()), D = static_cast<std::uint64_t>(widths.hidden);
  return (widths.weighs_inputs ? routes * D * number_bytes : 0) +
         std::max(3 * columns, columns + routes * D * out_bytes);
}

std::uint64_t PromptExperts::most_slice_numbers(const ExpertWidths& widths) {
  const std::int64_t up = widths.up * widths.hidden, down = widths.hidden * widths.mlp;
  return static_cast<std::uint64_t>(std::max(slice_experts(up, kSliceNumbers, widths.experts) * up,
                                             slice_experts(down, kSliceNumbers, widths.experts) * down));
}

// First rows, items and the counts of a last block that is not full; tables of weights.
std::uint64_t PromptExperts::fixed_bytes(const ModelConfig& config, const ExpertWidths& widths) {
  std::uint64_t sparse_layers = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) sparse_layers += config.is_sparse(layer);
  return static_cast<std::uint64_t>(widths.experts) *
         (2 * sizeof(std::int32_t) + sizeof(ExpertRows) + sparse_layers * 2 * sizeof(ExpertPlace));
}

}  // namespace magister::gpu
