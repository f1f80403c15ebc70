// The formulas are those of Attention::latent_reference (model/cpu/blocks_reference.cpp). The indexer computes in f32
// in any precision: rounding could change its choice.
#include "train/latent_heads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <numeric>

#include "magister/model/plain_attention.h"
#include "train/fused_ops.h"

namespace magister {
namespace {

VisibleKeys choose_keys(const at::Tensor& input_TD, const at::Tensor& short_TL, const LayerWeights& weights,
                        const LatentConfig& latent, const RopeTable& rope, std::span<const std::int64_t> cu_seqlens) {
  using Names = TensorNames::Layer;
  const c10::NoGradGuard no_graph;
  const IndexerConfig& indexer = *latent.indexer;
  const std::int64_t E = indexer.head_dim;
  const auto turned = [&](const at::Tensor& x_THE) {
    return fused_rotation(x_THE.contiguous(), rope, latent.rope_dim, indexer.rope_pairs);
  };
  const auto product = [&](const at::Tensor& x_TK, std::string Names::* weight) {
    return at::linear(x_TK.to(at::kFloat), weights(weight));
  };
  const at::Tensor q_TIE = turned(product(short_TL, &Names::index_q_proj).view({-1, indexer.heads, E})),
                   normed_TE =
                       at::layer_norm(product(input_TD, &Names::index_k_proj), {E}, weights(&Names::index_k_norm),
                                      weights(&Names::index_k_norm_bias), IndexerConfig::kNormEps),
                   k_TE = turned(normed_TE.unsqueeze(1)).squeeze(1),
                   weights_TI = product(input_TD, &Names::index_weights);
  VisibleKeys visible;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const std::int64_t begin = cu_seqlens[s], length = cu_seqlens[s + 1] - begin;
    visible.push_back(chosen_keys(q_TIE.narrow(0, begin, length), k_TE.narrow(0, begin, length),
                                  weights_TI.narrow(0, begin, length), indexer.top_k));
  }
  return visible;
}

}  // namespace

LatentHeads latent_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                         const RopeTable& rope, bool interleaved, std::span<const std::int64_t> cu_seqlens,
                         VisibleKeys& visible) {
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
  if (latent.query_rank > 0) queries = normed(queries, &Names::q_norm);
  if (shape.has_indexer && visible.empty()) visible = choose_keys(input_TD, queries, weights, latent, rope, cu_seqlens);
  if (latent.query_rank > 0) queries = weights.linear(queries, &Names::q_up_proj, nullptr);
  const auto q = queries.view({T, H, N + R}).split_with_sizes({N, R}, 2);
  const auto token = weights.linear(input_TD, &Names::k_proj, &Names::k_bias).split_with_sizes({latent.rank, R}, 1);
  const auto up = weights.linear(normed(token[0], &Names::k_norm), &Names::latent_up_proj, nullptr)
                      .view({T, H, N + V})
                      .split_with_sizes({N, V}, 2);
  LatentHeads out{at::cat({q[0], turned(q[1])}, 2),
                  at::cat({up[0], turned(token[1].unsqueeze(1)).expand({T, H, R})}, 2), up[1], shape};
  out.shape.kv_heads = H;
  out.shape.kv_of_head.resize(static_cast<std::size_t>(H));
  std::iota(out.shape.kv_of_head.begin(), out.shape.kv_of_head.end(), 0);
  return out;
}

}  // namespace magister
