// The start-up self-test of a model on a GPU: compares attention of layer 0, the first MLP, the first experts and the
// head with plain f32 ATen code on the same device.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/model/rope.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_latent_self_test.h"
#include "model/gpu/gpu_model.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

Linear widened(const GpuLinear& linear, const Queue& queue) {
  return {plain_weight(linear, at::kFloat, queue), linear.bias_N};
}

}  // namespace

// Compares the router, the choice of experts and its weights, the products of one expert and a shared one, and all
// experts, grouped on the device, with one product after the other, grouped on the host.
void GpuModel::self_test_experts(const GpuLayer& layer, const at::Tensor& normed_TD, double tolerance) {
  const char* kernels = queue_.on_host() ? "of the GPU on the host" : "of the GPU";
  const at::Tensor logits_TL = product(layer.router, normed_TD, at::kFloat, queue_);
  at::Tensor plain_TL = at::mm(normed_TD.to(at::kFloat), layer.router.weight_NK.to(at::kFloat).t());
  if (layer.router.bias_N.defined()) plain_TL = plain_TL + layer.router.bias_N;
  compare_paths("router", logits_TL, plain_TL, tolerance, kernels);
  const GpuRoutes routes = choose_experts(logits_TL, layer, queue_);
  const at::Tensor bias_X = layer.choice_bias_X.defined() ? layer.choice_bias_X.cpu() : at::Tensor();
  const Routes plain = magister::choose_experts(layer.shape.router_rule(), logits_TL.cpu(), bias_X);
  at::Tensor weights_TR = plain.weights_Tk;
  if (layer.expert_scales_X.defined())
    weights_TR = weights_TR * layer.expert_scales_X.cpu().index({plain.experts_Tk.to(at::kLong)});
  compare_paths("choice of experts", routes.experts_TR.to(at::kFloat).cpu(), plain.experts_Tk.to(at::kFloat), 0.0,
                kernels);
  compare_paths("weights of experts", routes.weights_TR.cpu(), weights_TR, 1e-6, kernels);
  for (const GpuExpert* expert : {&layer.experts.front(), &layer.experts.back()}) {
    const FeedForward plain_expert(layer.shape,
                                   {{}, widened(expert->gate_up_proj, queue_), widened(expert->down_proj, queue_)});
    const at::Tensor given_TD = one_mlp(expert->gate_up_proj, expert->down_proj, function_of(layer), true, {normed_TD});
    compare_paths("expert", given_TD.to(at::kFloat), plain_expert.reference(normed_TD.to(at::kFloat)), tolerance,
                  kernels);
  }
  const auto multiply = [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
    return one_mlp(expert.gate_up_proj, expert.down_proj, function_of(layer), true, {rows_RD});
  };
  compare_paths(prompt_experts_.has(layer) ? "experts in one launch" : "experts by their counts",
                prompt_experts_.run(layer, normed_TD, normed_TD, multiply, queue_).to(at::kFloat),
                run_experts(layer, normed_TD, normed_TD, multiply, queue_).to(at::kFloat), tolerance, kernels);
}

// block_TD: the stream, as in the pass.
void GpuModel::self_test_mlp(const GpuLayer& layer, const at::Tensor& block_TD, GpuPass& pass, double tolerance) {
  const ProductRows input_TD = norm_for(layer.gate_up_proj, pass, layer.mlp_norms);
  const at::Tensor given_TD =
      layer.shape.gate_cutoff ? sparse_mlp(layer, pass, input_TD)
                              : one_mlp(layer.gate_up_proj, layer.down_proj, function_of(layer), pass.cached, input_TD);
  const FeedForward plain(layer.shape, {layer.mlp_norms, widened(layer.gate_up_proj, queue_),
                                        widened(layer.down_proj, queue_), layer.xielu});
  compare_paths("MLP", given_TD.to(at::kFloat),
                plain.reference(block_TD, [&](at::Tensor& sum) { group_.all_reduce_sum(sum); }), tolerance,
                queue_.on_host() ? "of the GPU on the host" : "of the GPU");
}

void GpuModel::self_test() {
  decoder_.find_peer_sums();
  const GpuLayer& layer = weights_.layers.front();
  const PackedBatch batch = self_test_batch(weights_.config.vocab_size);
  // Tolerances relative to the range: f32 sums have another order; bf16 has 8 bits; e4m3 has 4, and activations lose
  // more than weights.
  const double tolerance = weights_.fp8 ? 0.15 : weights_.dtype == at::kFloat ? 1e-4 : 4e-2;
  const char* kernels = queue_.on_host() ? "of the GPU on the host" : "of the GPU";
  GpuPass pass = make_pass(batch, {});
  const at::Tensor block_TD = self_test_block(batch.num_tokens(), weights_.config.hidden_size).to(weights_.device);
  pass.hidden_TD.copy_(block_TD);

  AttentionWeights plain_weights{
      layer.attention_norms, widened(layer.qkv_proj, queue_), widened(layer.o_proj, queue_), layer.q_norm, layer.k_norm,
      layer.scores.sinks_H};
  if (layer.has_gate()) plain_weights.gate = widened(layer.attention_gate, queue_);
  plain_weights.q_norm_bias = layer.q_norm_bias;
  plain_weights.k_norm_bias = layer.k_norm_bias;
  if (layer.norms_values)
    plain_weights.v_norm =
        at::ones({layer.shape.value_dim()}, at::TensorOptions().dtype(at::kFloat).device(weights_.device));
  if (layer.latent) add_plain_latents(layer, plain_weights, queue_);
  const Attention plain_attention(layer.shape, std::move(plain_weights));
  const std::size_t table = layer.shape.rope_table;
  const at::Tensor cos_TE2 = pass.cos_PE2[table].index_select(0, pass.rope_rows_T),
                   sin_TE2 = pass.sin_PE2[table].index_select(0, pass.rope_rows_T);
  const at::Tensor attended_TD =
      multiply(layer.o_proj, pass, {attention(layer, pass, attention_input(layer, pass), {}, {})}).to(at::kFloat);
  KeysAndValues seen;
  if (pass.sparse != nullptr) seen = seen_keys(batch, *pass.sparse);
  compare_paths("attention", attended_TD,
                plain_attention.reference(
                    block_TD, batch, cos_TE2, sin_TE2, [&](at::Tensor& sum) { group_.all_reduce_sum(sum); }, &seen),
                tolerance, kernels);
  const auto dense = std::find_if(weights_.layers.begin(), weights_.layers.end(),
                                  [](const GpuLayer& one) { return one.gate_up_proj.outputs > 0; });
  if (dense != weights_.layers.end()) self_test_mlp(*dense, block_TD, pass, tolerance);
  const auto sparse = std::find_if(weights_.layers.begin(), weights_.layers.end(),
                                   [](const GpuLayer& one) { return !one.experts.empty(); });
  if (sparse != weights_.layers.end())
    self_test_experts(
        *sparse, norm(pass, sparse->beside.is_on() ? BlockNorms{sparse->beside.router_input_D} : sparse->mlp_norms),
        tolerance);
  const at::Tensor few_RD = block_TD.to(weights_.dtype);
  GpuLinear part = weights_.head;
  part.outputs = std::min<std::int64_t>(weights_.head.outputs, 1000);
  part.weight_NK = weights_.head.weight_NK.narrow(0, 0, part.outputs);
  at::Tensor wanted_RN = at::mm(few_RD.to(at::kDouble), part.weight_NK.to(at::kDouble).t());
  if (part.bias_N.defined()) wanted_RN.add_(part.bias_N = part.bias_N.narrow(0, 0, part.outputs));
  compare_paths("head product", product(part, few_RD, at::kFloat, queue_), wanted_RN.to(at::kFloat), tolerance,
                kernels);
}

}  // namespace magister::gpu
