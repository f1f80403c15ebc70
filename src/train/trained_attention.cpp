// Without GPU code attention runs one sequence at a time. The formulas are those of model/cpu/blocks_reference.cpp.
#include "train/trained_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/device/upload.h"
#include "magister/model/plain_attention.h"
#include "train/fused_ops.h"
#include "train/gpu_ops.h"

namespace magister {
namespace {

// The mask of one sequence's scores: a bias [1, H, L, L], or for all heads [L, L] bool; nothing: they are causal alone.
std::optional<at::Tensor> score_mask(std::int64_t length, const LayerShape& shape, at::Device device,
                                     const at::Tensor& chosen_LL) {
  if (chosen_LL.defined()) return chosen_LL;
  const bool windowed = shape.sliding_window > 0 && length > shape.sliding_window;
  if (!windowed && shape.alibi_slopes.empty()) return std::nullopt;
  const at::Tensor visible_LL = visible_keys(length, length, shape, device);
  if (shape.alibi_slopes.empty()) return visible_LL;
  return alibi_terms(length, length, shape, device)
      .masked_fill(visible_LL.logical_not(), -std::numeric_limits<double>::infinity())
      .unsqueeze(0);
}

// One sequence; q, k, v: [L, H, E].
// sinks_H: scores of one additional key that every query sees and that has no value; undefined: none. chosen_LL: the
// keys that each query sees, [L, L] bool; undefined: as the shape says.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sinks_H,
                  const LayerShape& shape, const at::Tensor& chosen_LL) {
  const std::int64_t length = q.size(0);
  const auto heads_first = [](const at::Tensor& x_LHE) { return x_LHE.transpose(0, 1).unsqueeze(0); };
  if (shape.attention_softcap == 0 && !sinks_H.defined()) {
    const std::optional<at::Tensor> mask = score_mask(length, shape, q.device(), chosen_LL);
    return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask, 0.0, !mask,
                                            static_cast<double>(shape.attention_scale))
        .squeeze(0)
        .transpose(0, 1);
  }
  const double cap = shape.attention_softcap;
  at::Tensor scores = at::matmul(heads_first(q), heads_first(k).transpose(-1, -2)) * shape.attention_scale;
  if (cap > 0) scores = at::tanh(scores / cap) * cap;
  scores = scores.masked_fill(visible_keys(length, length, shape, q.device()).logical_not(),
                              -std::numeric_limits<double>::infinity());
  if (sinks_H.defined())
    scores = at::cat({scores, sinks_H.view({1, -1, 1, 1}).expand({1, scores.size(1), length, 1})}, -1);
  const at::Tensor shares = at::softmax(scores, -1).narrow(-1, 0, length);
  return at::matmul(shares, heads_first(v)).squeeze(0).transpose(0, 1);
}

using Names = TensorNames::Layer;

// Returns [T, H, E] of all sequences; k and v have one head for each of q, or one for several.
at::Tensor attend_all(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE,
                      const at::Tensor& sinks_H, const LayerShape& shape, const TrainBatch& batch,
                      const VisibleKeys& visible = {}) {
  const std::int64_t T = q_THE.size(0), H = shape.heads, K = shape.kv_heads, E = shape.head_dim;
  if (GpuCodeScope::is_on() && shape.attention_softcap == 0 && !sinks_H.defined() && shape.has_usual_scores() &&
      visible.empty())
    return gpu_plain_attention(q_THE, k_TKE, v_TKE, batch.cu_seqlens, shape);
  const auto for_all_heads = [&](const at::Tensor& x_TKE) {
    return H == K ? x_TKE : x_TKE.unsqueeze(2).expand({T, K, H / K, E}).reshape({T, H, E});
  };
  const at::Tensor k_THE = for_all_heads(k_TKE), v_THE = for_all_heads(v_TKE);
  std::vector<at::Tensor> outputs;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    outputs.push_back(attend(q_THE.narrow(0, begin, length), k_THE.narrow(0, begin, length),
                             v_THE.narrow(0, begin, length), sinks_H, shape,
                             visible.empty() ? at::Tensor() : visible[s]));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

// The factors of all packed tokens' queries, [T, 1, 1].
at::Tensor query_scales(const LayerShape& shape, const TrainBatch& batch) {
  std::vector<float> scales;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    for (std::int64_t p = 0; p < batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; ++p)
      scales.push_back(query_scale(shape, p));
  }
  return at::tensor(scales, at::kFloat).view({-1, 1, 1});
}

// Heads whose values have another size than queries and keys: zeros make all three as wide. [T, H value_dim].
at::Tensor attend_padded(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKV,
                         const at::Tensor& sinks_H, const LayerShape& shape, const TrainBatch& batch) {
  LayerShape wide = shape;
  wide.head_dim = std::max(shape.head_dim, shape.value_dim());
  const auto padded = [&](const at::Tensor& x_THE) {
    return at::constant_pad_nd(x_THE, {0, wide.head_dim - x_THE.size(2)}).contiguous();
  };
  return attend_all(padded(q_THE), padded(k_TKE), padded(v_TKV), sinks_H, wide, batch)
      .narrow(2, 0, shape.value_dim())
      .flatten(1);
}

// Returns the outputs of all heads before their gate, [T, H value_dim].
at::Tensor ungated_heads_of(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                            const LayerShape& shape, const AttentionInputs& in) {
  if (shape.latent) {
    const LatentHeads heads =
        latent_heads(input_TD, weights, shape, in.rope, in.interleaved, in.batch.cu_seqlens, in.visible);
    return attend_all(heads.q_THE, heads.k_THE, heads.v_THE, {}, heads.shape, in.batch, in.visible)
        .narrow(2, 0, shape.latent->value_dim)
        .flatten(1);
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
  const bool flash = weights.mixed() && flash_trains(shape) && !sinks_H.defined() && V == E;
  const auto norm_of = [&](std::string Names::* name) {
    return shape.qk_l2_norm ? at::ones({E}, input_TD.options().dtype(at::kFloat)) : weights.norm(name);
  };
  const HeadNorms norms{norm_of(&Names::q_norm), norm_of(&Names::k_norm), shape.rms_norm_eps};
  const bool by_head = norms.q_E.defined() ? norms.k_E.defined() && norms.q_E.numel() == E && norms.k_E.numel() == E
                                           : !norms.k_E.defined();
  if (flash && by_head && usual && shape.clip_qkv == 0) {
    if (const at::Tensor qkv_TQ = weights.side_by_side(input_TD, names, from); qkv_TQ.defined())
      return gpu_flash_attention(qkv_TQ, *in.sequences, shape, &in.rope, in.interleaved, norms);
  }
  const std::vector<at::Tensor> qkv =
      shape.has_own_kv ? weights.linear(input_TD, shape.keys_are_values ? without_values : names, from)
                       : weights.linear(input_TD, alone, from);
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
  if (V != E) return attend_padded(q_THE, in.k_TKE, in.v_TKE, sinks_H, shape, in.batch);
  if (!flash) return attend_all(q_THE, in.k_TKE, in.v_TKE, sinks_H, shape, in.batch).reshape({T, H * E});
  const at::Tensor qkv_TAE = at::cat({q_THE, in.k_TKE, in.v_TKE}, 1).to(at::kBFloat16);
  return gpu_flash_attention(qkv_TAE.view({T, -1}), *in.sequences, shape, nullptr, false);
}

}  // namespace

at::Tensor attention_heads(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                           const LayerShape& shape, const AttentionInputs& in) {
  const at::Tensor out_TA = ungated_heads_of(input_TD, from, weights, shape, in);
  if (shape.gate_numbers == 0) return out_TA;
  const at::Tensor gate_TG1 = weights.linear(input_TD, &Names::attention_gate, nullptr).unsqueeze(2);
  const at::Tensor factors_TG1 = shape.gate == AttentionGate::kSigmoid ? at::sigmoid(gate_TG1) : at::softplus(gate_TG1);
  return (out_TA.unflatten(1, {shape.gate_numbers, -1}) * factors_TG1).flatten(1);
}

}  // namespace magister
