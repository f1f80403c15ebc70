// The second block of a layer in a decoding pass: an MLP, experts, or both.
#include <ATen/ATen.h>

#include "model/gpu/expert_kernels.h"
#include "model/gpu/gpu_decoder_bucket.h"
#include "model/gpu/gpu_mlp.h"

namespace magister::gpu {

ProductRows GpuDecoder::queue_up(Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                                 const Queue& queue) {
  const std::int64_t F = layer.shape.mlp;
  const MlpFunction function = function_of(layer);
  const ProductRows middle_RF = layer.down_proj.fp8_NK.defined() && gives_fp8(function, F)
                                    ? Fp8Places::first(fp8_.rows_TK(F), places.rows)
                                    : ProductRows{narrowed(places.middle_RF, F)};
  if (!middle_RF.bytes_MK.defined() && queue_gate_product(layer, normed_RD, middle_RF.x_MK, queue)) return middle_RF;
  at::Tensor gate_up_RF2 = narrowed(places.gate_up_RF2, layer.gate_up_proj.outputs);
  queue_product(layer.gate_up_proj, normed_RD, gate_up_RF2, queue);
  activate(function, gate_up_RF2, middle_RF, queue);
  return middle_RF;
}

// With parallel blocks, the MLP reads attention's input, or another norm of the same stream, before attention's output
// joins it.
at::Tensor* GpuDecoder::queue_second_block(std::size_t i, Places& places, const Queue& queue) {
  const GpuLayer& layer = weights_.layers[i];
  if (layer.beside.is_on()) return queue_beside(i, places, queue);
  const bool sparse = !layer.experts.empty();
  const auto multiply = [&](const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN) {
    queue_product(linear, x_RK, out_RN, queue);
  };
  ProductRows middle_RF;
  const auto read = [&](const ProductRows& normed_RD) {
    if (sparse) {
      experts_.queue_routes(i, normed_RD.x_MK, places.visible_R, queue);
      return experts_.queue_up(i, normed_RD.x_MK, multiply, queue);
    }
    middle_RF = queue_up(places, layer, normed_RD, queue);
  };
  const GpuLinear& next = sparse ? layer.router : layer.gate_up_proj;  // decides the form of the rows
  if (weights_.config.parallel_residual) {
    read(layer.mlp_shares_norm ? normed_rows(layer.first_product(), places)
                               : queue_norm_for(next, places, {}, layer.mlp_norms, queue));
    queue_norm(places, {&layer.attention_norms}, {}, queue);
  } else {
    read(queue_norm_for(next, places, {&layer.attention_norms}, layer.mlp_norms, queue));
  }
  if (sparse) {
    experts_.queue_down(i, places.delta_RD, multiply, queue);
  } else {
    queue_product(layer.down_proj, middle_RF, places.delta_RD, queue, after_layer(i));
  }
  return &places.delta_RD;
}

// Both read the stream, each through a norm of its own, and the sum of their normed outputs joins it next. As the norms
// need the sums over the shards, these are in the middle of the block.
at::Tensor* GpuDecoder::queue_beside(std::size_t i, Places& places, const Queue& queue) {
  const GpuLayer& layer = weights_.layers[i];
  const GpuBeside& beside = layer.beside;
  at::Tensor beside_RD = experts_.beside_rows(places.rows);
  const ProductRows normed_RD =
      queue_norm_for(layer.gate_up_proj, places, {&layer.attention_norms}, layer.mlp_norms, queue);
  queue_product(layer.down_proj, queue_up(places, layer, normed_RD, queue), places.delta_RD, queue);
  queue_norm(places, {}, BlockNorms{beside.router_input_D, {}}, queue);
  experts_.queue_routes(i, places.normed_RD, places.visible_R, queue);
  queue_norm(places, {}, BlockNorms{beside.experts_input_D, {}}, queue);
  const auto multiply = [&](const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN) {
    queue_product(linear, x_RK, out_RN, queue);
  };
  experts_.queue_up(i, places.normed_RD, multiply, queue);
  experts_.queue_down(i, beside_RD, multiply, queue);
  for (at::Tensor* part : {&places.delta_RD, &beside_RD}) queue_sum(*part, queue);
  const AddNormedRows<float> both{data<float>(places.delta_RD),
                                  data<float>(beside_RD),
                                  data<float>(beside.output_D),
                                  data<float>(beside.experts_output_D),
                                  data<float>(places.delta_RD),
                                  weights_.config.hidden_size,
                                  static_cast<float>(weights_.config.rms_norm_eps)};
  launch(both, both.shape(places.rows), queue);
  return nullptr;  // it is a sum already
}

}  // namespace magister::gpu
