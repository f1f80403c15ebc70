// The choice of experts, and their products one after the other.
#include "model/gpu/gpu_experts.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "magister/device/upload.h"
#include "magister/model/routes.h"
#include "model/gpu/expert_kernels.h"
#include "model/gpu/route_kernels.h"

namespace magister::gpu {
namespace {

RouteRule route_rule(const RouterRule& rule, bool has_choice_bias) {
  const RouterConfig& config = rule.config;
  RouteRule out;
  out.X = static_cast<int>(rule.experts);
  out.k = static_cast<int>(rule.per_token);
  out.S = static_cast<int>(rule.shared);
  out.L = static_cast<int>(rule.logits());
  out.normed = rule.normed;
  out.shared_gate = rule.shared_gate;
  out.shared_weight = config.shared_weight;
  if (config.scores == RouterConfig::Scores::kSparseMixer) {
    out.scores = RouteRule::Scores::kSparseMixer;
    out.margin = config.margin;
  } else if (!config.is_plain()) {
    const bool sigmoid = config.scores == RouterConfig::Scores::kSigmoid;
    out.scores = sigmoid ? RouteRule::Scores::kSigmoid : RouteRule::Scores::kSoftmax;
    out.by_logits = config.chooses_by_logits || (!has_choice_bias && config.groups == 1);
    out.G = static_cast<int>(config.groups);
    out.chosen_groups = static_cast<int>(config.chosen_groups);
    out.groups_by_best = config.groups_by_best;
    out.scaling = config.scaling;
    out.least_sum = config.least_sum;
  }
  return out;
}

}  // namespace

GpuRoutes choose_experts(const at::Tensor& logits_TL, const GpuLayer& layer, const Queue& queue) {
  const std::int64_t T = logits_TL.size(0), R = layer.shape.router_rule().routes();
  GpuRoutes routes{at::empty({T, R}, logits_TL.options().dtype(at::kInt)), at::empty({T, R}, logits_TL.options())};
  choose_experts(logits_TL, layer, routes, queue);
  return routes;
}

void choose_experts(const at::Tensor& logits_TL, const GpuLayer& layer, const GpuRoutes& routes, const Queue& queue) {
  const RouterRule rule = layer.shape.router_rule();
  MAGISTER_ASSERT(logits_TL.is_contiguous() && logits_TL.size(1) == rule.logits());
  const ChooseExperts kernel{data<float>(logits_TL),
                             data<float>(layer.choice_bias_X),
                             data<float>(layer.expert_scales_X),
                             data<std::int32_t>(routes.experts_TR),
                             data<float>(routes.weights_TR),
                             logits_TL.size(0),
                             route_rule(rule, layer.choice_bias_X.defined())};
  launch(kernel, kernel.shape(), queue);
}

at::Tensor gather_tokens(const at::Tensor& normed_TD, const at::Tensor& route_N, const at::Tensor& weights_TR,
                         std::int64_t routes, const Queue& queue) {
  const std::int64_t N = route_N.size(0), D = normed_TD.size(1);
  at::Tensor rows_ND = at::empty({N, D}, normed_TD.options());
  with_type(normed_TD.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const GatherTokens<A> kernel{
        data<A>(normed_TD),      data<std::int32_t>(route_N), data<float>(weights_TR), data<A>(rows_ND), D,
        static_cast<int>(routes)};
    launch(kernel, kernel.shape(N), queue);
  });
  return rows_ND;
}

at::Tensor sum_experts(const at::Tensor& rows_ND, const at::Tensor& row_of_TR, const at::Tensor& weights_TR,
                       const Queue& queue) {
  const std::int64_t T = row_of_TR.size(0), R = row_of_TR.size(1), D = rows_ND.size(1);
  at::Tensor out_TD = at::empty({T, D}, rows_ND.options());
  with_type(rows_ND.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const SumExperts<A> kernel{
        data<A>(rows_ND),   data<std::int32_t>(row_of_TR), data<float>(weights_TR), data<A>(out_TD), D,
        static_cast<int>(R)};
    launch(kernel, kernel.shape(T), queue);
  });
  return out_TD;
}

at::Tensor multiply_by_expert(const GpuLayer& layer, const at::Tensor& normed_TD, const at::Tensor& weights_TR,
                              const GpuExpertGroups& groups,
                              const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                              const Queue& queue) {
  const LayerShape& shape = layer.shape;
  const std::int64_t D = normed_TD.size(1), R = shape.experts_per_token;
  const bool weighs_inputs = shape.router.weighs_inputs;
  const at::Tensor input_weights_TR = weighs_inputs ? weights_TR : at::Tensor(),
                   output_weights_TR = weighs_inputs ? at::Tensor() : weights_TR;
  const auto options =
      normed_TD.options().dtype(layer.experts[0].down_proj.float_out ? at::kFloat : normed_TD.scalar_type());
  at::Tensor rows_ND = at::empty({groups.route_N.size(0), D}, options);
  for (std::int64_t x = 0; x < shape.num_experts; ++x) {
    const std::int64_t first = groups.first[static_cast<std::size_t>(x)],
                       count = groups.first[static_cast<std::size_t>(x) + 1] - first;
    if (count == 0) continue;
    // A shared expert has the tokens in their order.
    const bool as_they_are = x >= shape.num_experts - shape.num_shared_experts && !weighs_inputs;
    const at::Tensor own_ND =
        as_they_are ? normed_TD
                    : gather_tokens(normed_TD, groups.route_N.narrow(0, first, count), input_weights_TR, R, queue);
    rows_ND.narrow(0, first, count).copy_(multiply(layer.experts[static_cast<std::size_t>(x)], own_ND));
  }
  return sum_experts(rows_ND, groups.place_of_TR, output_weights_TR, queue);
}

at::Tensor run_experts(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD,
                       const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                       const Queue& queue) {
  const GpuRoutes routes = choose_experts(product(layer.router, router_TD, at::kFloat, queue), layer, queue);
  const ExpertGroups groups = group_by_expert(routes.experts_TR.cpu(), layer.shape.num_experts);
  const at::Tensor route_N = upload(at::tensor(groups.entry, at::kInt), normed_TD.device()),
                   place_of_N = upload(at::tensor(groups.row_of, at::kInt), normed_TD.device());
  return multiply_by_expert(layer, normed_TD, routes.weights_TR,
                            {route_N, place_of_N.view(routes.experts_TR.sizes()), groups.first}, multiply, queue);
}

}  // namespace magister::gpu
