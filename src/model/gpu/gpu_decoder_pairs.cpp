// Products of a decoding pass that end with what follows them: the rotation of q and k, and an MLP's gate.
#include "model/gpu/gpu_decoder_bucket.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/gpu_rotation.h"
#include "model/gpu/paired_product.h"

namespace magister::gpu {

bool GpuDecoder::queue_rotated_product(const Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                                       const at::Tensor& qkv_RQ, const KvCache& cache, const Queue& queue) const {
  const LayerShape& shape = layer.shape;
  if (products_ != nullptr || layer.qkv_proj.fp8_NK.defined() || repeated_keys(shape) > 0 || norms_all_heads(layer) ||
      steps_of(layer, places.rope_rows_R).any())
    return false;
  const RotatedEnds end{rotation_of<Bf16>(layer, qkv_RQ, rope_.cos(shape.rope_table), rope_.sin(shape.rope_table),
                                          places.rope_rows_R, cache.keys[layer.kv_layer], cache.values[layer.kv_layer],
                                          places.slots_R)};
  const FewRows rows = few_rows(layer.qkv_proj, normed_RD.x_MK);
  return rotate_product(rows.arguments, rows.bits, rows.group, end, queue, next_weight(layer.o_proj));
}

bool GpuDecoder::queue_gate_product(const GpuLayer& layer, const ProductRows& normed_RD, const at::Tensor& middle_RF,
                                    const Queue& queue) const {
  const MlpFunction function = function_of(layer);
  if (products_ != nullptr || layer.gate_up_proj.fp8_NK.defined() || !function.is_plain_gate()) return false;
  const GateEnds end{data<Bf16>(middle_RF), static_cast<int>(layer.shape.mlp), function.activation};
  const FewRows rows = few_rows(layer.gate_up_proj, normed_RD.x_MK);
  return gate_product(rows.arguments, rows.bits, rows.group, end, queue, next_weight(layer.down_proj));
}

NextWeight GpuDecoder::after_attention(const GpuLayer& layer) const {
  if (!layer.experts.empty()) return {};
  return next_weight(layer.gate_up_proj, products_ == nullptr && function_of(layer).is_plain_gate());
}

NextWeight GpuDecoder::after_layer(std::size_t i) const {
  return next_weight(i + 1 < weights_.layers.size() ? weights_.layers[i + 1].qkv_proj : weights_.head);
}

}  // namespace magister::gpu
