// The formulas are those of model/cpu/blocks_reference.cpp.
#include "train/trained_attention.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "magister/device/upload.h"
#include "magister/model/plain_attention.h"
#include "train/delta_attention.h"
#include "train/fused_ops.h"

namespace magister {
namespace {

using Names = TensorNames::Layer;

// The factors of all packed tokens' queries, [T, 1, 1].
at::Tensor query_scales(const LayerShape& shape, const TrainBatch& batch) {
  std::vector<float> scales;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    for (std::int64_t p = 0; p < batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; ++p)
      scales.push_back(query_scale(shape, p));
  }
  return at::tensor(scales, at::kFloat).view({-1, 1, 1});
}

// Returns the outputs of all heads before their gate, [T, H value_dim]. gate_TG: receives the gate's product, where it
// is one with that of the queries.
at::Tensor ungated_heads_of(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                            const LayerShape& shape, const AttentionInputs& in, at::Tensor& gate_TG) {
  if (shape.latent) {
    const LatentHeads heads =
        latent_heads(input_TD, weights, shape, in.rope, in.interleaved, in.batch.cu_seqlens, in.visible);
    return attend_sequences(heads.q_THE, heads.k_THE, heads.v_THV, {}, heads.shape, in.batch.cu_seqlens, in.plan,
                            weights.mixed(), in.visible);
  }
  const std::int64_t T = input_TD.size(0), H = shape.heads, K = shape.kv_heads, E = shape.head_dim,
                     V = shape.value_dim();
  const auto names = {
      std::pair(&Names::q_proj, &Names::q_bias), {&Names::k_proj, &Names::k_bias}, {&Names::v_proj, &Names::v_bias}};
  const at::Tensor sinks_H = weights(&Names::sinks);
  const bool usual = !shape.qk_norm_after_rope && shape.query_scale_beta == 0 && !shape.keys_are_values && !in.v_norm &&
                     shape.has_own_kv && V == E && shape.value_scale == 1.0f && !weights(&Names::q_norm_bias).defined();
  const auto without_values = {std::pair(&Names::q_proj, &Names::q_bias), {&Names::k_proj, &Names::k_bias}};
  const auto alone = {std::pair(&Names::q_proj, &Names::q_bias)};
  const LayerShape wide = kernel_shape(shape, weights.mixed());
  const auto norm_of = [&](std::string Names::* name) {
    return shape.qk_l2_norm ? at::ones({E}, input_TD.options().dtype(at::kFloat)) : weights.norm(name);
  };
  const HeadNorms norms{norm_of(&Names::q_norm), norm_of(&Names::k_norm), shape.rms_norm_eps};
  const bool by_head = norms.q_E.defined() ? norms.k_E.defined() && norms.q_E.numel() == E && norms.k_E.numel() == E
                                           : !norms.k_E.defined();
  if (weights.mixed() && wide.head_dim == E && flash_trains(wide) && by_head && usual && shape.clip_qkv == 0) {
    if (const at::Tensor qkv_TQ = weights.side_by_side(input_TD, names, from); qkv_TQ.defined())
      return gpu_flash_attention(qkv_TQ, *in.plan, wide, &in.rope, in.interleaved, norms, sinks_H);
  }
  const auto with_gate = {std::pair(&Names::q_proj, &Names::q_bias),
                          {&Names::k_proj, &Names::k_bias},
                          {&Names::v_proj, &Names::v_bias},
                          {&Names::attention_gate, static_cast<std::string Names::*>(nullptr)}};
  std::vector<at::Tensor> qkv = weights.gate_is_beside_queries() ? weights.linear(input_TD, with_gate, from)
                                : !shape.has_own_kv              ? weights.linear(input_TD, alone, from)
                                : shape.keys_are_values          ? weights.linear(input_TD, without_values, from)
                                                                 : weights.linear(input_TD, names, from);
  if (weights.gate_is_beside_queries()) {
    gate_TG = qkv.back();
    qkv.pop_back();
  }
  const auto clipped = [&](const at::Tensor& x) {
    return shape.clip_qkv > 0 ? at::clamp(x, -shape.clip_qkv, shape.clip_qkv) : x;
  };
  // One norm per head, or one over all heads if the weight is as wide.
  const auto normed = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    if (bias.defined()) return head_layer_norm(x.view({T, -1, E}), weight, bias, shape.rms_norm_eps);
    return weight.defined() ? fused_rms_norm(x.view({T, -1, weight.numel()}), weight, shape.rms_norm_eps) : x;
  };
  const auto turned = [&](at::Tensor x, std::string Names::* norm, std::string Names::* norm_bias, std::int64_t heads) {
    const at::Tensor weight = norm_of(norm), bias = weights(norm_bias);
    if (!shape.qk_norm_after_rope) x = normed(x, weight, bias);
    x = clipped(x).view({T, heads, E});
    if (shape.rotary_dim > 0) x = fused_rotation(x, in.rope, shape.rotary_dim, in.interleaved);
    return shape.qk_norm_after_rope ? normed(x.contiguous(), weight, bias).view({T, heads, E}) : x;
  };
  at::Tensor q_THE = turned(qkv[0], &Names::q_norm, &Names::q_norm_bias, H);
  if (shape.query_scale_beta > 0) q_THE = q_THE * upload(query_scales(shape, in.batch), q_THE.device());
  if (shape.has_own_kv) {
    in.k_TKE = turned(qkv[1], &Names::k_norm, &Names::k_norm_bias, K);
    in.v_TKE = clipped(qkv.back()).view({T, K, V});  // the keys' product where these are the values
    if (shape.value_scale != 1.0f) in.v_TKE = in.v_TKE * shape.value_scale;
    if (in.v_norm) in.v_TKE = fused_rms_norm(in.v_TKE, at::ones({V}, in.v_TKE.options()), shape.rms_norm_eps);
  }
  return attend_sequences(q_THE, in.k_TKE, in.v_TKE, sinks_H, shape, in.batch.cu_seqlens, in.plan, weights.mixed());
}

}  // namespace

at::Tensor attention_heads(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                           const LayerShape& shape, const AttentionInputs& in) {
  if (shape.delta) return delta_heads(input_TD, weights, shape, in.batch.cu_seqlens);
  at::Tensor gate_TG;
  const at::Tensor out_TA = ungated_heads_of(input_TD, from, weights, shape, in, gate_TG);
  if (shape.gate_numbers == 0) return out_TA;
  if (!gate_TG.defined()) gate_TG = weights.linear(input_TD, &Names::attention_gate, nullptr);
  const at::Tensor gate_TG1 = gate_TG.unsqueeze(2);
  const at::Tensor factors_TG1 = shape.gate == AttentionGate::kSigmoid ? at::sigmoid(gate_TG1) : at::softplus(gate_TG1);
  return (out_TA.unflatten(1, {shape.gate_numbers, -1}) * factors_TG1).flatten(1);
}

}  // namespace magister
