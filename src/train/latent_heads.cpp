// The formulas are those of Attention::latent_reference (model/cpu/blocks_reference.cpp).
#include "train/latent_heads.h"

#include <ATen/ATen.h>

#include <numeric>

#include "train/fused_ops.h"

namespace magister {

LatentHeads latent_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                         const RopeTable& rope, bool interleaved) {
  using Names = TensorNames::Layer;
  const LatentConfig& latent = *shape.latent;
  const std::int64_t T = input_TD.size(0), H = shape.heads, R = latent.rope_dim, N = latent.nope_dim,
                     V = latent.value_dim;
  const auto normed = [&](const at::Tensor& x_TC, std::string Names::* weight) {
    return fused_rms_norm(x_TC.contiguous().view({T, 1, -1}), weights.norm(weight), LatentConfig::kNormEps)
        .view({T, -1});
  };
  const auto turned = [&](const at::Tensor& x_THR) { return fused_rotation(x_THR.contiguous(), rope, R, interleaved); };
  at::Tensor queries = weights.linear(input_TD, &Names::q_proj, &Names::q_bias);
  if (latent.query_rank > 0) queries = weights.linear(normed(queries, &Names::q_norm), &Names::q_up_proj, nullptr);
  const auto q = queries.view({T, H, N + R}).split_with_sizes({N, R}, 2);
  const auto token = weights.linear(input_TD, &Names::k_proj, &Names::k_bias).split_with_sizes({latent.rank, R}, 1);
  const auto up = weights.linear(normed(token[0], &Names::k_norm), &Names::latent_up_proj, nullptr)
                      .view({T, H, N + V})
                      .split_with_sizes({N, V}, 2);
  LatentHeads out{at::cat({q[0], turned(q[1])}, 2),
                  at::cat({up[0], turned(token[1].unsqueeze(1)).expand({T, H, R})}, 2), up[1], shape};
  if (V < N + R) out.v_THE = at::constant_pad_nd(out.v_THE, {0, N + R - V});
  out.shape.kv_heads = H;
  out.shape.kv_of_head.resize(static_cast<std::size_t>(H));
  std::iota(out.shape.kv_of_head.begin(), out.shape.kv_of_head.end(), 0);
  return out;
}

}  // namespace magister
