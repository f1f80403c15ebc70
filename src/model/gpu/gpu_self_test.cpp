// The start-up self-test of a model on a GPU: compares layer 0 and the head with plain f32 ATen code on the same
// device.
#include <ATen/ATen.h>

#include <algorithm>

#include "magister/model/rope.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_model.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

Linear widened(const GpuLinear& linear, const Queue& queue) {
  return {plain_weight(linear, at::kFloat, queue), linear.bias_N};
}

}  // namespace

// Compares the router, the choice of experts and its weights, and the products of one expert of layer 0.
void GpuModel::self_test_experts(const GpuLayer& layer, const at::Tensor& normed_TD, double tolerance) {
  const char* kernels = queue_.on_host() ? "of the GPU on the host" : "of the GPU";
  const at::Tensor logits_TX = product(layer.router, normed_TD, at::kFloat, queue_);
  compare_paths("router", logits_TX, at::mm(normed_TD.to(at::kFloat), layer.router.weight_NK.to(at::kFloat).t()),
                tolerance, kernels);
  const GpuRoutes routes = choose_experts(logits_TX, layer.shape, queue_);
  const Routes plain =
      magister::choose_experts(logits_TX.cpu(), layer.shape.experts_per_token, layer.shape.norm_topk_prob);
  compare_paths("choice of experts", routes.experts_Tk.to(at::kFloat).cpu(), plain.experts_Tk.to(at::kFloat), 0.0,
                kernels);
  compare_paths("weights of experts", routes.weights_Tk.cpu(), plain.weights_Tk, 1e-6, kernels);
  const GpuExpert& expert = layer.experts.front();
  const FeedForward plain_expert(layer.shape,
                                 {{}, widened(expert.gate_up_proj, queue_), widened(expert.down_proj, queue_)});
  const at::Tensor given_TD = gated_mlp(expert.gate_up_proj, expert.down_proj, layer.shape.expert_mlp,
                                        layer.shape.activation, true, {normed_TD});
  compare_paths("expert", given_TD.to(at::kFloat), plain_expert.reference(normed_TD.to(at::kFloat)), tolerance,
                kernels);
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

  AttentionWeights plain_weights{layer.attention_norms, widened(layer.qkv_proj, queue_), widened(layer.o_proj, queue_),
                                 layer.q_norm, layer.k_norm};
  plain_weights.q_norm_bias = layer.q_norm_bias;
  plain_weights.k_norm_bias = layer.k_norm_bias;
  if (layer.norms_values)
    plain_weights.v_norm =
        at::ones({layer.shape.value_dim()}, at::TensorOptions().dtype(at::kFloat).device(weights_.device));
  const Attention plain_attention(layer.shape, std::move(plain_weights));
  const std::size_t table = layer.shape.rope_table;
  const at::Tensor cos_TE2 = pass.cos_PE2[table].index_select(0, pass.rope_rows_T),
                   sin_TE2 = pass.sin_PE2[table].index_select(0, pass.rope_rows_T);
  const at::Tensor attended_TD =
      attention(layer, pass, norm_for(layer.qkv_proj, pass, layer.attention_norms), {}, {}).to(at::kFloat);
  compare_paths("attention", attended_TD,
                plain_attention.reference(block_TD, batch, cos_TE2, sin_TE2,
                                          [&](at::Tensor& sum) { group_.all_reduce_sum(sum); }),
                tolerance, kernels);
  if (layer.experts.empty()) {
    const at::Tensor mlp_TD = mlp(layer, pass, norm_for(layer.gate_up_proj, pass, layer.mlp_norms)).to(at::kFloat);
    const FeedForward plain(layer.shape,
                            {layer.mlp_norms, widened(layer.gate_up_proj, queue_), widened(layer.down_proj, queue_)});
    compare_paths("MLP", mlp_TD, plain.reference(block_TD), tolerance, kernels);
  } else {
    self_test_experts(layer, norm(pass, layer.mlp_norms), tolerance);
  }
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
