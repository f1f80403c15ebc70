// Tokens are gathered by expert once and added back once, so an expert costs only its products.
#include "train/trained_experts.h"

#include <ATen/ATen.h>

#include <cmath>

#include "magister/device/upload.h"
#include "magister/model/plain_activation.h"
#include "magister/model/routes.h"
#include "train/fused_ops.h"
#include "train/gpu_ops.h"
#include "train/recomputed.h"

namespace magister {
namespace {

at::Tensor clamped_swiglu(const std::vector<at::Tensor>& gate_up, double limit, double alpha) {
  const at::Tensor gate = gate_up[0].clamp_max(limit), up = gate_up[1].clamp(-limit, limit);
  return gate * at::sigmoid(gate * alpha) * (up + 1);
}

}  // namespace

at::Tensor gated(const at::Tensor& gate_TF, const at::Tensor& up_TF, const LayerShape& shape) {
  if (shape.swiglu_limit > 0)
    return recomputed<clamped_swiglu>({gate_TF, up_TF}, shape.swiglu_limit, shape.swiglu_alpha);
  if (GpuCodeScope::is_on()) return gpu_gate(gate_TF, up_TF, shape.activation);
  if (shape.activation == Activation::kSilu) return fused_silu_product(gate_TF, up_TF);
  return activated(gate_TF, shape.activation) * up_TF;
}

at::Tensor mixture_of_experts(const at::Tensor& input_TD, const at::Tensor& router_TD, const LayerWeights& weights,
                              const LayerShape& shape) {
  const std::int64_t k = shape.experts_per_token;
  const RouterRule rule = shape.router_rule();
  const at::Tensor logits_TL = weights.router(router_TD);
  const at::Tensor bias_X = weights(&TensorNames::Layer::router_choice_bias);
  const at::Tensor experts_Tk =
      choose_experts(rule, download(logits_TL.detach()).contiguous(),
                     bias_X.defined() ? download(bias_X.detach()).flatten().contiguous() : at::Tensor())
          .experts_Tk;
  const at::Tensor chosen_Tk = upload(experts_Tk.to(at::kLong), input_TD.device());
  at::Tensor shares_Tk = route_weights(rule, logits_TL, chosen_Tk);
  if (const at::Tensor scales_X = weights(&TensorNames::Layer::expert_scales); scales_X.defined())
    shares_Tk = shares_Tk * scales_X.index_select(0, chosen_Tk.flatten()).view(chosen_Tk.sizes());
  const ExpertGroups groups = group_by_expert(experts_Tk, shape.num_experts);
  const at::Tensor entries_N = upload(at::tensor(groups.entry, at::kInt).to(at::kLong), input_TD.device());
  const at::Tensor tokens_N = at::floor_divide(entries_N, k);
  std::vector<std::int64_t> counts;
  for (std::size_t x = 0; x + 1 < groups.first.size(); ++x) counts.push_back(groups.first[x + 1] - groups.first[x]);
  const std::vector<at::Tensor> rows = input_TD.index_select(0, tokens_N).split_with_sizes(counts, 0);
  const at::Tensor shares_N1 = shares_Tk.reshape({-1}).index_select(0, entries_N).unsqueeze(1);
  const std::vector<at::Tensor> shares = shares_N1.split_with_sizes(counts, 0);
  std::vector<at::Tensor> outputs;
  for (std::int64_t x = 0; x < shape.num_experts; ++x) {
    at::Tensor rows_ND = rows[static_cast<std::size_t>(x)];
    if (rows_ND.size(0) == 0) continue;
    if (rule.config.weighs_inputs) rows_ND = rows_ND * shares[static_cast<std::size_t>(x)];
    const auto [gate_NF, up_NF] = weights.expert_gate_up(rows_ND, x);
    outputs.push_back(weights.expert_down(gated(gate_NF, up_NF, shape), x));
  }
  const at::Tensor outputs_ND = at::cat(outputs, 0);
  return at::zeros_like(input_TD).index_add(0, tokens_N,
                                            rule.config.weighs_inputs ? outputs_ND : outputs_ND * shares_N1);
}

at::Tensor experts_beside(const at::Tensor& stream_TD, const LayerWeights& weights, const LayerShape& shape) {
  using Names = TensorNames::Layer;
  const auto normed = [&](const at::Tensor& x_TD, const at::Tensor& weight_D) {
    return fused_rms_norm(x_TD, weight_D, shape.rms_norm_eps);
  };
  const double root = std::sqrt(static_cast<double>(shape.hidden_size));
  const at::Tensor router_TD = normed(stream_TD, weights(&Names::router_scale) / root),
                   input_TD = normed(stream_TD, weights.norm(&Names::experts_input_norm));
  return normed(mixture_of_experts(input_TD, router_TD, weights, shape), weights.norm(&Names::experts_output_norm));
}

}  // namespace magister
