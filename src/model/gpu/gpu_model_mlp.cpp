// The second block of a layer in a pass of prompts: an MLP, experts, or both.
#include <ATen/ATen.h>

#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/gpu_model.h"

namespace magister::gpu {

at::Tensor GpuModel::experts(const GpuLayer& layer, const at::Tensor& router_TD, const at::Tensor& normed_TD) const {
  const MlpFunction function = function_of(layer);
  // An expert gets a few rows of a pass.
  const auto multiply = [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
    return one_mlp(expert.gate_up_proj, expert.down_proj, function, true, {rows_RD});
  };
  return prompt_experts_.run(layer, router_TD, normed_TD, multiply, queue_);
}

at::Tensor GpuModel::one_mlp(const GpuLinear& gate_up_proj, const GpuLinear& down_proj, const MlpFunction& function,
                             bool small_tiles, const ProductRows& normed_RD) const {
  const auto multiply = [&](const GpuLinear& linear, const ProductRows& rows) {
    return product_in_tiles(linear, rows, small_tiles ? linear.prompt_tiles : linear.pass_tiles, queue_);
  };
  const at::Tensor up_RN = multiply(gate_up_proj, normed_RD);
  const std::int64_t R = up_RN.size(0), F = down_proj.inputs;
  const ProductRows middle_RF = down_proj.fp8_NK.defined() && gives_fp8(function, F)
                                    ? ProductRows::empty_fp8(R, F, weights_.device)
                                    : ProductRows{at::empty({R, F}, up_RN.options())};
  activate(function, up_RN, middle_RF, queue_);
  return multiply(down_proj, middle_RF);
}

void GpuModel::mlp_block(const GpuLayer& layer, GpuPass& pass, const ProductRows& beside) const {
  if (layer.beside.is_on()) return run_beside(layer, pass);
  const bool parallel = weights_.config.parallel_residual;
  if (parallel) norm(pass, {});  // adds attention's output to the residual stream
  const ProductRows input_TD = parallel                 ? beside
                               : !layer.experts.empty() ? ProductRows{norm(pass, layer.mlp_norms)}
                                                        : norm_for(layer.gate_up_proj, pass, layer.mlp_norms);
  begin_sum(pass, mlp(layer, pass, input_TD), layer.mlp_norms, layer.factor);
}

void GpuModel::run_beside(const GpuLayer& layer, GpuPass& pass) const {
  const GpuBeside& beside = layer.beside;
  const ProductRows input_TD = norm_for(layer.gate_up_proj, pass, layer.mlp_norms);
  at::Tensor dense_TD = one_mlp(layer.gate_up_proj, layer.down_proj, function_of(layer), pass.cached, input_TD),
             experts_TD = experts(layer, norm(pass, BlockNorms{beside.router_input_D}),
                                  norm(pass, BlockNorms{beside.experts_input_D}));
  for (at::Tensor* part : {&dense_TD, &experts_TD}) {
    if (group_.tp_size() > 1) group_.all_reduce_sum(*part);
  }
  pass.delta_TD = add_normed_rows(dense_TD, beside.output_D, experts_TD, beside.experts_output_D,
                                  weights_.config.rms_norm_eps, queue_);
  pass.delta_norm_D = layer.mlp_norms.output_D;
  pass.delta_factor = layer.factor;
  pass.delta_is_sum = true;
}

}  // namespace magister::gpu
