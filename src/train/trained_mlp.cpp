// See trained_mlp.h. The formulas are those of model/cpu/blocks_reference.cpp.
#include "train/trained_mlp.h"

#include <ATen/ATen.h>

#include "magister/model/plain_activation.h"
#include "magister/model/weights.h"
#include "train/altup.h"
#include "train/fused_ops.h"
#include "train/recomputed.h"
#include "train/trained_experts.h"

namespace magister {
namespace {

// inputs: x, and the two learned numbers. The result has the type of x.
at::Tensor xielu(const std::vector<at::Tensor>& inputs, double, double) {
  const at::Tensor x = inputs[0].to(at::kFloat), linear = x * Xielu::kBeta,
                   alpha_n = at::softplus(inputs[2]) + Xielu::kBeta;
  return at::where(x > 0, x.square() * at::softplus(inputs[1]) + linear,
                   (at::expm1(x.clamp_max(Xielu::kLeast)) - x) * alpha_n + linear)
      .to(inputs[0].scalar_type());
}

}  // namespace

at::Tensor feed_forward(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                        const LayerShape& shape, const at::Tensor& stream_TD) {
  using Names = TensorNames::Layer;
  const auto down = [&](const at::Tensor& active_TF) {
    return weights.linear_onto(stream_TD, active_TF, &Names::down_proj, &Names::down_bias);
  };
  if (const at::Tensor alpha_p = weights(&Names::xielu_alpha_p); alpha_p.defined()) {
    const at::Tensor x = weights.mixed() ? weights.side_by_side(input_TD, {{&Names::up_proj, &Names::up_bias}}, from)
                                         : weights.linear(input_TD, &Names::up_proj, &Names::up_bias);
    return down(recomputed<xielu>({x, alpha_p, weights(&Names::xielu_alpha_n)}));
  }
  if (!shape.gated_mlp && weights.mixed())
    return down(
        activated(weights.side_by_side(input_TD, {{&Names::up_proj, &Names::up_bias}}, from), shape.activation));
  if (!shape.gated_mlp)
    return down(activated(weights.linear(input_TD, &Names::up_proj, &Names::up_bias), shape.activation));
  const auto names = {std::pair(&Names::gate_proj, &Names::gate_bias), {&Names::up_proj, &Names::up_bias}};
  if (weights.mixed() && shape.swiglu_limit == 0 && !shape.gate_cutoff)
    return weights.linear_onto(stream_TD, weights.side_by_side(input_TD, names, from), &Names::down_proj,
                               &Names::down_bias, {RowsFrom::kGate, shape.activation});
  const std::vector<at::Tensor> gate_up = weights.linear(input_TD, names);
  const at::Tensor gate_TF = shape.gate_cutoff ? sparse_gates(gate_up[0], *shape.gate_cutoff) : gate_up[0];
  return down(gated(gate_TF, gate_up[1], shape));
}

}  // namespace magister
