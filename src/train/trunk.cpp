// Whole batches; see trunk.h. The blocks of a layer: trained_layer.h.
#include "magister/train/trunk.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "magister/core/fail_point.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/weights.h"
#include "train/alibi_columns.h"
#include "train/altup.h"
#include "train/fused_ops.h"
#include "train/gpu_attention.h"
#include "train/gpu_ops.h"
#include "train/layer_weights.h"
#include "train/trained_attention.h"
#include "train/trained_layer.h"
#include "train/trained_norm.h"

namespace magister {
namespace {

using Names = TensorNames::Layer;

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

// The norm of the embeddings or the last one. weights: its weight, and its bias where norms have them.
TrainedNorm end_norm(std::span<const at::Tensor> weights, const ModelConfig& config, const at::TensorOptions& options) {
  return {config.weightless_norms ? at::ones({config.hidden_size}, options) : weights.front(),
          static_cast<float>(config.rms_norm_eps), config.norm_kind == NormKind::kLayer,
          config.norm_bias ? weights[1] : at::Tensor()};
}

std::size_t num_joined(const ModelConfig& config) {
  return static_cast<std::size_t>(config.altup ? config.altup->inputs - 1 : 0);
}

// The stream before the first layer, [T, D], or with AltUp [T, A, D]. leaves: the layer's parameters, of which the last
// ones belong to the embeddings; see ParameterLayout.
at::Tensor first_stream(at::Tensor hidden_TD, std::span<const at::Tensor> leaves, const ModelConfig& config,
                        bool bf16) {
  const std::size_t of_norm = config.weightless_norms ? 0 : config.norm_bias ? 2 : 1;
  if (config.embedding_norm) hidden_TD = end_norm(leaves.last(of_norm), config, hidden_TD.options())(hidden_TD);
  return config.altup ? spread_stream(hidden_TD, leaves.last(num_joined(config)), bf16) : hidden_TD;
}

// The last norm of the stream. leaves: its parameters, and those that join the stream's vectors.
at::Tensor last_output(at::Tensor stream_TD, std::span<const at::Tensor> leaves, const ModelConfig& config, bool bf16) {
  if (config.altup) stream_TD = join_stream(stream_TD, leaves.last(num_joined(config)), bf16);
  TrainedNorm norm = end_norm(leaves, config, stream_TD.options());
  if (config.norm_weights_plus_one) norm.weight = norm.weight + 1.0;
  return norm(stream_TD);
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
  const ModelConfig& config = layout.description().config;
  if (options.gpu_code) {
    const auto plan = std::make_shared<SequencePlan>(batch.cu_seqlens, flat.device());
    if (config.alibi_max > 0)
      plan->alibi_THC =
          alibi_columns(shape_of(config, partition_for(config, 0, 1), 0), batch.cu_seqlens, flat.device());
    sequences_ = plan;
    if (config.chunked_windows)
      chunks_ = std::make_shared<SequencePlan>(batch.cu_seqlens, flat.device(), config.sliding_window);
  }
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
  made.rows_TX = leaf_of(at::embedding(layout_.view(flat_, layout_.per_layer()->table), rows_of_vectors()));
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
  gradient.put(weights.table, of_table.index_add_(0, rows_of_vectors(), gradients[2]));
  return gradients[3];
}

at::Tensor TrunkPass::rows_of_vectors() const {
  return at::where(token_ids_T_ < layout_.description().config.per_layer_vocab, token_ids_T_,
                   at::zeros_like(token_ids_T_));
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
  const ModelConfig& config = layout_.description().config;
  if (layer == layout_.layers().size()) return last_output(kept.input_TD, kept.parameters, config, options_.bf16);
  at::Tensor input_TD =
      layer == 0 ? first_stream(kept.input_TD, kept.parameters, config, options_.bf16) : kept.input_TD;
  const LayerWeights weights(layout_, layer, kept.parameters, lora_ ? &lora_->layout : nullptr, kept.factors,
                             options_.bf16);
  const auto number = static_cast<std::int64_t>(layer);
  const LayerShape shape = shape_of(config, partition_for(config, 0, 1), number);
  at::Tensor predicted_TAD;
  if (config.altup) {
    predicted_TAD = predicted_stream(input_TD, weights, config, shape, options_.learns);
    input_TD = predicted_TAD.select(1, config.altup->active).contiguous();
  }
  std::size_t chooser = layer;
  while (config.latent && config.latent->indexer && !config.chooses_keys(static_cast<std::int64_t>(chooser))) --chooser;
  const AttentionInputs inputs{batch_,
                               shape.chunked_windows ? chunks_.get() : sequences_.get(),
                               rope_[shape.rope_table],
                               layout_.description().names.interleaved_rope_rows,
                               config.v_norm,
                               visible_[chooser],
                               kept.kv.k_TKE,
                               kept.kv.v_TKE};
  at::Tensor output_TD = TrainedLayer(config, weights, shape, config.is_sparse(number)).output(input_TD, inputs);
  if (config.altup)
    return corrected_stream(predicted_TAD, output_TD, kept.vectors_TP, weights, config, shape, options_.learns);
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
