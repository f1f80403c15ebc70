// The kernel arguments of a layer's rotation: for the kernel of its own and for the end of a product.
// Legend: T packed tokens, H query heads and K KV heads of this shard, E head_dim, R rotated dimensions.
#pragma once

#include "magister/core/error.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/head_steps_kernel.h"

namespace magister::gpu {

// True where a norm of q and k is over all heads together, which a kernel for single heads cannot compute.
inline bool norms_all_heads(const GpuLayer& layer) {
  return layer.shape.all_heads > 0 || (layer.q_norm.defined() && layer.q_norm.numel() != layer.shape.head_dim);
}

// Arguments as of rotate_heads() in gpu_attention.h.
template <typename A>
RotateHeads<A> rotation_of(const GpuLayer& layer, const at::Tensor& qkv_TQ, const at::Tensor& cos_PR2,
                           const at::Tensor& sin_PR2, const at::Tensor& rows_T, const at::Tensor& keys,
                           const at::Tensor& values, const at::Tensor& slots_T) {
  const LayerShape& shape = layer.shape;
  const bool of_all = norms_all_heads(layer);
  return {data<A>(qkv_TQ),
          data<float>(cos_PR2),
          data<float>(sin_PR2),
          data<std::int32_t>(rows_T),
          of_all ? nullptr : data<float>(layer.q_norm),
          of_all ? nullptr : data<float>(layer.k_norm),
          data<A>(keys),
          data<A>(values),
          data<std::int64_t>(slots_T),
          shape.heads,
          shape.own_kv_heads(),
          shape.head_dim,
          shape.rotary_dim,
          shape.rms_norm_eps,
          shape.value_dim(),
          holds_codes(keys)};
}

inline HeadSteps steps_of(const GpuLayer& layer, const at::Tensor& positions_T) {
  const LayerShape& shape = layer.shape;
  MAGISTER_ASSERT(!shape.qk_norm_after_rope || !layer.q_norm_bias.defined());
  return {data<float>(layer.q_norm_bias),
          data<float>(layer.k_norm_bias),
          shape.qk_norm_after_rope && layer.q_norm.defined(),
          layer.norms_values,
          shape.value_scale,
          shape.query_scale_beta,
          shape.query_scale_positions,
          shape.query_scale_shift,
          data<std::int32_t>(positions_T)};
}

}  // namespace magister::gpu
