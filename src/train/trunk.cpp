// Whole batches; see trunk.h. Without GPU code attention runs one sequence at a time. The formulas are those of
// model/cpu/blocks_reference.cpp.
#include "magister/train/trunk.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <tuple>
#include <utility>

#include "magister/core/fail_point.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/plain_activation.h"
#include "magister/model/plain_attention.h"
#include "magister/model/weights.h"
#include "train/fused_ops.h"
#include "train/gpu_attention.h"
#include "train/gpu_ops.h"
#include "train/latent_heads.h"
#include "train/layer_weights.h"
#include "train/trained_experts.h"

namespace magister {
namespace {

// A block's norm of its input (centred: a layer norm) or of its output.
struct Norm {
  at::Tensor weight;  // undefined: none
  double eps;
  bool centred = false;
  at::Tensor bias{};  // of a centred norm; undefined: none

  at::Tensor operator()(const at::Tensor& x) const {
    if (!weight.defined()) return x;
    return centred ? at::layer_norm(x, weight.sizes(), weight, bias, eps) : fused_rms_norm(x, weight, eps);
  }
  // The rows that products read, in GPU code: recomputed from the stream.
  RowsFrom rows_from(const at::Tensor& normed_TD, const at::Tensor& stream_TD) const {
    if (normed_TD.scalar_type() != at::kBFloat16) return {};
    return {RowsFrom::kNorm, Activation::kSilu, stream_TD.detach(), weight.detach(), eps};
  }
  // Returns the normed stream, and the stream itself for what is added to it.
  std::pair<at::Tensor, at::Tensor> of_stream(const at::Tensor& x_TD, at::ScalarType to) const {
    if (!weight.defined() || centred || !GpuCodeScope::is_on()) return {(*this)(x_TD), x_TD};
    return gpu_norm_of_stream(x_TD, weight, eps, to);
  }
};

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

// Inputs of one micro-batch's attention besides weights.
struct AttentionInputs {
  const TrainBatch& batch;
  const SequencePlan* sequences;  // for GPU code
  const RopeTable& rope;
  bool interleaved;
  bool v_norm;
  VisibleKeys& visible;       // of layers with an indexer; filled by the layer that chooses
  at::Tensor &k_TKE, &v_TKE;  // of this layer, or for a layer without its own those of another
};

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

// Returns the outputs of all heads, [T, H value_dim].
at::Tensor heads_of(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                    const LayerShape& shape, const AttentionInputs& in) {
  const at::Tensor out_TA = ungated_heads_of(input_TD, from, weights, shape, in);
  if (shape.gate_numbers == 0) return out_TA;
  const at::Tensor gate_TG1 = weights.linear(input_TD, &Names::attention_gate, nullptr).unsqueeze(2);
  const at::Tensor factors_TG1 = shape.gate == AttentionGate::kSigmoid ? at::sigmoid(gate_TG1) : at::softplus(gate_TG1);
  return (out_TA.unflatten(1, {shape.gate_numbers, -1}) * factors_TG1).flatten(1);
}

// The last product of a block, on top of the residual stream if that is given; a norm of the block's output forbids
// that.
at::Tensor added_by(const at::Tensor& x, const LayerWeights& weights, const at::Tensor& stream_TD,
                    std::string Names::* weight, std::string Names::* bias) {
  return stream_TD.defined() ? weights.linear_onto(stream_TD, x, weight, bias) : weights.linear(x, weight, bias);
}

at::Tensor feed_forward(const at::Tensor& input_TD, const RowsFrom& from, const LayerWeights& weights,
                        const LayerShape& shape, const at::Tensor& stream_TD) {
  const auto down = [&](const at::Tensor& active_TF) {
    return added_by(active_TF, weights, stream_TD, &Names::down_proj, &Names::down_bias);
  };
  if (const at::Tensor alpha_p = weights(&Names::xielu_alpha_p); alpha_p.defined()) {
    const at::Tensor x = weights.linear(input_TD, &Names::up_proj, &Names::up_bias), linear = x * Xielu::kBeta,
                     alpha_n = at::softplus(weights(&Names::xielu_alpha_n)) + Xielu::kBeta;
    return down(at::where(x > 0, x.square() * at::softplus(alpha_p) + linear,
                          (at::expm1(x.clamp_max(Xielu::kLeast)) - x) * alpha_n + linear));
  }
  if (!shape.gated_mlp && weights.mixed())
    return down(
        activated(weights.side_by_side(input_TD, {{&Names::up_proj, &Names::up_bias}}, from), shape.activation));
  if (!shape.gated_mlp)
    return down(activated(weights.linear(input_TD, &Names::up_proj, &Names::up_bias), shape.activation));
  const auto names = {std::pair(&Names::gate_proj, &Names::gate_bias), {&Names::up_proj, &Names::up_bias}};
  if (weights.mixed() && shape.swiglu_limit == 0)
    return weights.linear_onto(stream_TD, weights.side_by_side(input_TD, names, from), &Names::down_proj,
                               &Names::down_bias, {RowsFrom::kGate, shape.activation});
  const std::vector<at::Tensor> gate_up = weights.linear(input_TD, names);
  return down(gated(gate_up[0], gate_up[1], shape));
}

// The experts beside an MLP, which read the stream as it is; normed.
at::Tensor experts_beside(const at::Tensor& stream_TD, const LayerWeights& weights, const LayerShape& shape) {
  const auto normed = [&](const at::Tensor& x_TD, const at::Tensor& weight_D) {
    return fused_rms_norm(x_TD, weight_D, shape.rms_norm_eps);
  };
  const double root = std::sqrt(static_cast<double>(shape.hidden_size));
  const at::Tensor router_TD = normed(stream_TD, weights(&Names::router_scale) / root),
                   input_TD = normed(stream_TD, weights.norm(&Names::experts_input_norm));
  return normed(mixture_of_experts(input_TD, router_TD, weights, shape), weights.norm(&Names::experts_output_norm));
}

// Returns the product of a token's vector for this layer. Source: transformers' Gemma4TextDecoderLayer.
at::Tensor added_by_vectors(const at::Tensor& stream_TD, const at::Tensor& vectors_TP, const LayerWeights& weights,
                            const LayerShape& shape) {
  const at::Tensor active_TP =
      activated(weights.linear(stream_TD, &Names::per_layer_gate, nullptr), shape.activation) * vectors_TP;
  return fused_rms_norm(weights.linear(active_TP, &Names::per_layer_output, nullptr),
                        weights.norm(&Names::per_layer_output_norm), shape.rms_norm_eps);
}

// This pass needs its own leaf, because several threads differentiate by the same weights.
at::Tensor leaf_of(const at::Tensor& view) { return view.detach().requires_grad_(true); }

// True if later layers use the keys and values of this one.
bool is_read_later(const ModelConfig& config, std::int64_t layer) {
  for (std::int64_t reader = config.num_hidden_layers - config.shared_kv_layers; reader < config.num_hidden_layers;
       ++reader)
    if (config.kv_layer(reader) == layer) return true;
  return false;
}

RopeTable rope_of_batch(const ModelConfig& config, const TrainBatch& batch, std::size_t number, at::Device device) {
  std::int64_t longest = 0;  // of the sequences that share a table
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int64_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    if (!rope_needs_own_table(config, length)) longest = std::max(longest, length);
  }
  const RopeTable shared = rope_table(config, 0, longest, number);
  std::vector<at::Tensor> cos, sin;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int64_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    const RopeTable table = rope_needs_own_table(config, length) ? rope_table(config, length, length, number) : shared;
    cos.push_back(table.cos_PE2.narrow(0, 0, length));
    sin.push_back(table.sin_PE2.narrow(0, 0, length));
  }
  return {upload(at::cat(cos, 0), device), upload(at::cat(sin, 0), device)};
}

// Position of every packed token in its sequence.
at::Tensor positions_of(const TrainBatch& batch) {
  std::vector<at::Tensor> all;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s)
    all.push_back(at::arange(batch.cu_seqlens[s + 1] - batch.cu_seqlens[s], at::kLong));
  return at::cat(all, 0);
}

}  // namespace

TrunkPass::TrunkPass(const ParameterLayout& layout, const at::Tensor& flat, const TrainBatch& batch,
                     const TrunkOptions& options, std::optional<LoraWeights> lora)
    : layout_(layout),
      flat_(flat),
      batch_(batch),
      options_(options),
      lora_(lora),
      token_ids_T_(upload(batch.token_ids_T, flat.device())) {
  if (options.gpu_code) sequences_ = std::make_shared<SequencePlan>(batch.cu_seqlens, flat.device());
  const ModelConfig& config = layout.description().config;
  for (std::size_t i = 0; i < num_rope_tables(config); ++i)
    rope_.push_back(rope_of_batch(config, batch, i, flat.device()));
  const c10::NoGradGuard no_graph;
  at::Tensor hidden_TD =
      at::embedding(layout.view(flat, layout.embeddings()), token_ids_T_) * embedding_multiplier(config, at::kFloat);
  if (layout.positions()) {
    positions_T_ = upload(positions_of(batch) + config.skipped_position_rows, flat.device());
    hidden_TD += at::embedding(layout.view(flat, *layout.positions()), positions_T_);
  }
  visible_.resize(layout.layers().size());
  if (layout.per_layer()) vectors_ = make_vectors(hidden_TD);
  for (std::size_t layer = 0; layer <= layout.layers().size(); ++layer) {
    kept_.push_back(run_layer(layer, hidden_TD, !options.recompute));
    hidden_TD = kept_.back().output_TD.detach();
    if (options.recompute) kept_.back().output_TD.reset();
  }
  hidden_TD_ = std::move(hidden_TD);
}

// The formula is that of PerLayerInputs (model/cpu/per_layer_inputs.h). Its graph is kept in any case: it is small.
TrunkPass::Vectors TrunkPass::make_vectors(const at::Tensor& hidden_TD) const {
  const c10::AutoGradMode mode(!lora_);
  const GpuCodeScope gpu_code(options_.gpu_code);
  const ModelConfig& config = layout_.description().config;
  const std::int64_t N = config.num_hidden_layers, P = config.per_layer_width;
  const auto width = static_cast<double>(config.hidden_size);
  Vectors made;
  made.input_TD = leaf_of(hidden_TD);
  made.rows_TX = leaf_of(at::embedding(layout_.view(flat_, layout_.per_layer()->table), token_ids_T_));
  made.projection = leaf_of(layout_.view(flat_, layout_.per_layer()->projection));
  made.norm = leaf_of(layout_.view(flat_, layout_.per_layer()->norm));
  const at::Tensor product_TX = at::linear(made.input_TD, made.projection) / std::sqrt(width);
  made.output_TNP = (fused_rms_norm(product_TX.view({-1, N, P}), made.norm, static_cast<float>(config.rms_norm_eps)) +
                     made.rows_TX.view({-1, N, P}) * std::sqrt(static_cast<double>(P))) /
                    std::numbers::sqrt2;
  return made;
}

at::Tensor TrunkPass::put_vectors(const at::Tensor& gradient_TNP, MicroGradient& gradient) const {
  const std::vector<at::Tensor> gradients = torch::autograd::grad(
      {vectors_.output_TNP}, {vectors_.projection, vectors_.norm, vectors_.rows_TX, vectors_.input_TD}, {gradient_TNP});
  const c10::NoGradGuard no_graph;
  const ParameterLayout::PerLayer& weights = *layout_.per_layer();
  gradient.put(weights.projection, gradients[0]);
  gradient.put(weights.norm, gradients[1]);
  at::Tensor of_table = at::zeros(layout_.all()[weights.table].shape, gradients[2].options());
  gradient.put(weights.table, of_table.index_add_(0, token_ids_T_, gradients[2]));
  return gradients[3];
}

TrunkPass::Kept TrunkPass::run_layer(std::size_t layer, const at::Tensor& input_TD, bool with_graph) {
  const c10::AutoGradMode mode(with_graph);
  const GpuCodeScope gpu_code(options_.gpu_code);
  Kept kept;
  kept.input_TD = leaf_of(input_TD);
  const bool is_norm = layer == layout_.layers().size();
  for (const std::size_t parameter : parameters_of(layer))
    kept.parameters.push_back(leaf_of(layout_.view(flat_, parameter)).requires_grad_(!lora_));
  if (lora_ && !is_norm) {
    for (const LoraLayout::Pair& pair : lora_->layout.pairs(layer)) {
      for (const std::size_t factor : {pair.a, pair.b})
        kept.factors.push_back(leaf_of(lora_->layout.view(lora_->flat, factor)));
    }
  }
  const auto number = static_cast<std::int64_t>(layer);
  const ModelConfig& config = layout_.description().config;
  if (!is_norm && !config.has_own_kv(number)) {
    const KeysAndValues& read = kept_[static_cast<std::size_t>(config.kv_layer(number))].kv;
    kept.kv = {leaf_of(read.k_TKE), leaf_of(read.v_TKE)};
  }
  if (!is_norm && layout_.per_layer()) kept.vectors_TP = leaf_of(vectors_.output_TNP.select(1, number).contiguous());
  kept.output_TD = layer_output(layer, kept);
  if (!is_norm && config.has_own_kv(number) && !is_read_later(config, number)) kept.kv = {};
  return kept;
}

// Layer number layers().size() is the last norm.
const std::vector<std::size_t>& TrunkPass::parameters_of(std::size_t layer) const {
  return layer == layout_.layers().size() ? layout_.norm() : layout_.layers()[layer].parameters;
}

at::Tensor TrunkPass::layer_output(std::size_t layer, Kept& kept) {
  const std::vector<at::Tensor>& leaves = kept.parameters;
  const ModelConfig& config = layout_.description().config;
  const bool centred = config.norm_kind == NormKind::kLayer;
  const double eps = static_cast<float>(config.rms_norm_eps);
  at::Tensor input_TD = kept.input_TD;
  if (layer == 0 && config.embedding_norm && config.weightless_norms)
    input_TD = Norm{at::ones({config.hidden_size}, input_TD.options()), eps, centred}(input_TD);
  if (layer == 0 && config.embedding_norm &&
      !config.weightless_norms) {  // the last of the first layer's parameters, see ParameterLayout
    const std::size_t weight = leaves.size() - (config.norm_bias ? 2 : 1);
    input_TD = Norm{leaves[weight], eps, centred, config.norm_bias ? leaves.back() : at::Tensor()}(input_TD);
  }
  if (layer == layout_.layers().size()) {
    const at::Tensor weight = config.weightless_norms ? at::ones({config.hidden_size}, input_TD.options()) : leaves[0];
    return Norm{config.norm_weights_plus_one ? weight + 1.0 : weight, eps, centred,
                leaves.size() > 1 ? leaves[1] : at::Tensor()}(input_TD);
  }
  const LayerWeights weights(layout_, layer, leaves, lora_ ? &lora_->layout : nullptr, kept.factors, options_.bf16);
  const LayerShape shape = shape_of(config, partition_for(config, 0, 1), static_cast<std::int64_t>(layer));
  const Norm attention_output{weights.norm(&Names::attention_output_norm), eps},
      mlp_output{weights.norm(&Names::mlp_output_norm), eps};
  const Norm attention_input{weights.norm(&Names::attention_input_norm), eps, centred,
                             weights(&Names::attention_input_norm_bias)},
      mlp_input{weights.norm(&Names::mlp_input_norm), eps, centred, weights(&Names::mlp_input_norm_bias)};
  const bool sparse = config.is_sparse(static_cast<std::int64_t>(layer)),
             shared = config.parallel_residual && !config.parallel_norms;
  // Rounding could change a router's choice.
  const auto type_for = [&](bool router) { return weights.mixed() && !router ? at::kBFloat16 : at::kFloat; };
  const auto [normed_TD, stream_TD] = attention_input.of_stream(input_TD, type_for(sparse && shared));
  const RowsFrom from = attention_input.rows_from(normed_TD, input_TD);
  // A block's output is added to the stream by its last product, or here.
  const auto add = [&](const at::Tensor& onto_TD, const Norm& norm, bool by_product, const auto& block) {
    if (by_product && weights.mixed() && !norm.weight.defined()) return block(onto_TD);
    return onto_TD + norm(block(at::Tensor()));
  };
  std::size_t chooser = layer;
  while (config.latent && config.latent->indexer && !config.chooses_keys(static_cast<std::int64_t>(chooser))) --chooser;
  const AttentionInputs inputs{
      batch_,        sequences_.get(),  rope_[shape.rope_table], layout_.description().names.interleaved_rope_rows,
      config.v_norm, visible_[chooser], kept.kv.k_TKE,           kept.kv.v_TKE};
  at::Tensor hidden_TD = add(stream_TD, attention_output, true, [&](const at::Tensor& onto_TD) {
    return added_by(heads_of(normed_TD, from, weights, shape, inputs), weights, onto_TD, &Names::o_proj,
                    &Names::o_bias);
  });
  at::Tensor mlp_input_TD = normed_TD;
  RowsFrom mlp_from = from;
  if (config.parallel_norms) {
    std::tie(mlp_input_TD, mlp_from) = std::pair(mlp_input(input_TD), RowsFrom());
  } else if (!config.parallel_residual) {
    const at::Tensor before_TD = hidden_TD;
    std::tie(mlp_input_TD, hidden_TD) = mlp_input.of_stream(before_TD, type_for(sparse));
    mlp_from = mlp_input.rows_from(mlp_input_TD, before_TD);
  }
  const at::Tensor stream_in_TD = hidden_TD;
  at::Tensor output_TD = add(hidden_TD, mlp_output, !sparse, [&](const at::Tensor& onto_TD) {
    if (!sparse) return feed_forward(mlp_input_TD, mlp_from, weights, shape, onto_TD);
    if (!config.dense_beside_experts) return mixture_of_experts(mlp_input_TD, mlp_input_TD, weights, shape);
    const at::Tensor dense_TD = feed_forward(mlp_input_TD, mlp_from, weights, shape, at::Tensor());
    return Norm{weights.norm(&Names::dense_output_norm), eps}(dense_TD) + experts_beside(stream_in_TD, weights, shape);
  });
  if (kept.vectors_TP.defined()) output_TD = output_TD + added_by_vectors(output_TD, kept.vectors_TP, weights, shape);
  const at::Tensor scalar = weights(&Names::layer_scalar);
  return scalar.defined() ? output_TD * scalar.detach() : output_TD;
}

void TrunkPass::put_gradients(std::size_t layer, std::span<const at::Tensor> gradients, MicroGradient& gradient) const {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (lora_) {
      const LoraLayout::Pair& pair = lora_->layout.pairs(layer)[i / 2];
      gradient.put(i % 2 == 0 ? pair.a : pair.b, gradients[i]);
    } else {
      const std::size_t parameter = parameters_of(layer)[i];
      gradient.put(parameter,
                   gradients[i].defined() ? gradients[i] : at::zeros(layout_.all()[parameter].shape, at::kFloat));
    }
  }
}

void TrunkPass::backward(const at::Tensor& hidden_gradient_TD, at::Tensor& embedding_gradient_VD,
                         MicroGradient& gradient) {
  const ModelConfig& config = layout_.description().config;
  at::Tensor gradient_TD = hidden_gradient_TD, of_vectors_TNP;
  if (layout_.per_layer() && !lora_) of_vectors_TNP = at::empty_like(vectors_.output_TNP);
  std::vector<KeysAndValues> of_kv(kept_.size());  // by layer: sums over the layers that have read its keys and values
  for (std::size_t layer = kept_.size(); layer-- > 0;) {
    TORCH_CHECK_WITH(OutOfMemoryError, !fail_point("train.pass.memory"), "a test asked for it");
    Kept kept = std::move(kept_[layer]);
    if (!kept.output_TD.defined()) kept = run_layer(layer, kept.input_TD, true);
    std::vector<at::Tensor> inputs = lora_ ? kept.factors : kept.parameters;
    const std::size_t num_trained = inputs.size();
    const bool reads_kv = layer + 1 < kept_.size() && !config.has_own_kv(static_cast<std::int64_t>(layer));
    const bool learns_vectors = kept.vectors_TP.defined() && of_vectors_TNP.defined();
    if (reads_kv) inputs.insert(inputs.end(), {kept.kv.k_TKE, kept.kv.v_TKE});
    if (learns_vectors) inputs.push_back(kept.vectors_TP);
    if (embedding_gradient_VD.defined() || layer > 0) inputs.push_back(kept.input_TD);
    if (inputs.empty()) return;
    std::vector<at::Tensor> outputs = {kept.output_TD}, of_outputs = {gradient_TD};
    if (of_kv[layer].k_TKE.defined()) {
      outputs.insert(outputs.end(), {kept.kv.k_TKE, kept.kv.v_TKE});
      of_outputs.insert(of_outputs.end(), {of_kv[layer].k_TKE, of_kv[layer].v_TKE});
      of_kv[layer] = {};
    }
    // An expert without a token has no gradient.
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad(outputs, inputs, of_outputs, std::nullopt, false, true);
    gradient_TD = gradients.back();
    const c10::NoGradGuard no_graph;
    if (reads_kv) {
      KeysAndValues& sum = of_kv[static_cast<std::size_t>(config.kv_layer(static_cast<std::int64_t>(layer)))];
      const at::Tensor &of_k = gradients[num_trained], &of_v = gradients[num_trained + 1];
      sum = sum.k_TKE.defined() ? KeysAndValues{sum.k_TKE + of_k, sum.v_TKE + of_v} : KeysAndValues{of_k, of_v};
    }
    if (learns_vectors)
      of_vectors_TNP.select(1, static_cast<std::int64_t>(layer)).copy_(gradients[num_trained + (reads_kv ? 2 : 0)]);
    put_gradients(layer, std::span(gradients).first(num_trained), gradient);
  }
  if (of_vectors_TNP.defined()) gradient_TD = gradient_TD + put_vectors(of_vectors_TNP, gradient);
  if (!embedding_gradient_VD.defined()) return;
  const c10::NoGradGuard no_graph;
  if (layout_.positions()) {
    at::Tensor of_positions = at::zeros(layout_.all()[*layout_.positions()].shape, gradient_TD.options());
    gradient.put(*layout_.positions(), of_positions.index_add_(0, positions_T_, gradient_TD));
  }
  embedding_gradient_VD.index_add_(0, token_ids_T_,
                                   gradient_TD * embedding_multiplier(layout_.description().config, at::kFloat));
}

}  // namespace magister
