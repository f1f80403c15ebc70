// Random weights of a model with one layer of experts, without attention, for tests of experts alone.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/gpu/gpu_mxfp4.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu::experts_alone {

using Scores = RouterConfig::Scores;

// A model of one layer with experts, as GpuWeights alone.
struct Experts {
  std::int64_t D = 96, F = 64, X = 6, k = 2, shared = 0, shared_F = 0;
  RouterConfig router{};
  bool normed = true, biases = false;
  float swiglu_limit = 0;
  QuantScheme scheme{};
  bool fp8 = false, mxfp4 = false;
  at::ScalarType dtype = at::kBFloat16;  // of the activations, and of weights that are no codes
};

// Numbers of MXFP4, groups beginning `lead` inputs before the first one.
inline at::Tensor mxfp4_numbers(std::int64_t N, std::int64_t K, std::int64_t lead) {
  const at::Tensor sizes = at::tensor({0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}, at::kFloat),
                   sign_NK = 1 - 2 * at::randint(2, {N, K}).to(at::kFloat),
                   scale_NG = at::pow(2.0f, at::randint(-5, -1, {N, (lead + K + 31) / 32}).to(at::kFloat));
  return sizes.index_select(0, at::randint(8, {N * K}, at::kLong)).view({N, K}) * sign_NK *
         scale_NG.repeat_interleave(32, 1).narrow(1, lead, K);
}

inline GpuLinear linear(std::int64_t N, std::int64_t K, const Experts& of) {
  Linear plain{at::randn({N, K}) * 0.2, of.biases ? at::randn({N}) : at::Tensor()};
  if (of.scheme.on()) return to_device(quantize(plain, of.scheme), at::kCPU);
  if (of.mxfp4) plain.weight_NK = mxfp4_numbers(N, K, 0);
  plain.weight_NK = plain.weight_NK.to(of.dtype);
  GpuLinear there = to_device(plain, at::kCPU);
  if (of.fp8) to_fp8(there, Queue{});
  EXPECT_EQ(of.mxfp4 && to_mxfp4(there, 0, Queue{}), of.mxfp4);
  return there;
}

inline GpuWeights weights_with(const Experts& of) {
  GpuWeights weights;
  weights.dtype = of.dtype;
  weights.fp8 = of.fp8;
  ModelConfig& config = weights.config;
  config.family = "llama";
  config.vocab_size = 96;
  config.hidden_size = of.D;
  config.intermediate_size = 32;
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.num_experts = of.X;
  config.num_experts_per_tok = of.k;
  config.moe_intermediate_size = of.F;
  config.num_shared_experts = of.shared;
  config.shared_intermediate_size = of.shared_F;
  config.norm_topk_prob = of.normed;
  config.router = of.router;
  if (of.swiglu_limit > 0) {
    config.swiglu_alpha = 1.7f;
    config.swiglu_limit = of.swiglu_limit;
  }
  weights.partition = partition_for(config, 0, 1);
  GpuLayer& layer = weights.layers.emplace_back();
  layer.shape = shape_of(config, weights.partition, 0);
  Experts plain = of;
  plain.scheme = {};
  plain.fp8 = plain.mxfp4 = false;
  layer.router = linear(layer.shape.router_rule().logits(), of.D, plain);
  if (of.router.choice_bias) layer.choice_bias_X = at::randn({of.X}) * 0.1;
  for (std::int64_t x = 0; x < of.X + of.shared; ++x) {
    const std::int64_t F = x < of.X ? layer.shape.expert_mlp : layer.shape.shared_mlp;
    const Experts& format = x < of.X || !of.fp8 ? of : plain;
    layer.experts.push_back({linear(2 * F, of.D, format), linear(of.D, F, format)});
    layer.experts.back().down_proj.float_out = true;
  }
  return weights;
}

}  // namespace magister::gpu::experts_alone
