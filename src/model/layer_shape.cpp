// Sizes of a shard's part of a layer, from the sizes of the model.
#include "magister/model/layer_shape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "magister/core/error.h"
#include "magister/model/rope.h"

namespace magister {

namespace {

// ALiBi's slope of head h of H. Beyond the largest power of two below H come every other slope of twice as many heads.
float alibi_slope(double most, std::int64_t h, std::int64_t H) {
  std::int64_t whole = 1;
  while (2 * whole <= H) whole *= 2;
  const double n = static_cast<double>(whole);
  const double power = h < whole ? static_cast<double>(h + 1) / n : static_cast<double>(2 * (h - whole) + 1) / (2 * n);
  return static_cast<float>(std::exp2(-most * power));
}

float rounded_to_bf16(float number) { return static_cast<float>(c10::BFloat16(number)); }

}  // namespace

LayerShape shape_of(const ModelConfig& config, const Partition& of_model, std::int64_t layer) {
  const Partition partition = layer_partition(config, of_model, layer);
  LayerShape shape;
  shape.hidden_size = config.hidden_size;
  shape.heads = static_cast<std::int64_t>(partition.heads.size());
  shape.kv_heads = static_cast<std::int64_t>(partition.kv_heads.size());
  shape.head_dim = config.head_dim_of(layer);
  shape.has_own_kv = config.has_own_kv(layer);
  shape.keys_are_values = config.keys_are_values(layer);
  shape.mlp = static_cast<std::int64_t>(partition.mlp.size());
  shape.expert_mlp = static_cast<std::int64_t>(partition.expert.size());
  shape.shared_mlp = static_cast<std::int64_t>(partition.shared_expert.size());
  shape.num_experts = config.all_experts();
  shape.experts_per_token = config.experts_a_token();
  shape.num_shared_experts = config.num_shared_experts;
  shape.shared_expert_gate = config.shared_expert_gate;
  shape.router = config.router;
  shape.norm_topk_prob = config.norm_topk_prob;
  shape.sliding_window = config.slides(layer) ? config.sliding_window : 0;
  shape.rotary_dim = config.rotary_dim_of(layer);
  shape.rope_table = config.sliding_rope && config.slides(layer) ? 1 : 0;
  const auto heads_per_kv = static_cast<std::uint64_t>(config.heads_of(layer) / config.kv_heads_of(layer));
  for (std::uint64_t head = partition.heads.begin; head < partition.heads.end; ++head) {
    shape.kv_of_head.push_back(
        config.latent ? 0 : static_cast<std::int64_t>(head / heads_per_kv - partition.kv_heads.begin));
  }
  if (config.is_linear(layer)) shape.delta = config.delta;
  shape.own_value_dim = shape.delta ? shape.delta->value_dim : config.value_dim;
  shape.value_scale = static_cast<float>(config.value_scale);
  shape.gate = config.attention_gate;
  shape.gate_numbers = config.gate_numbers(layer) / config.heads_of(layer) * shape.heads;
  shape.latent = config.latent;
  shape.has_indexer = config.chooses_keys(layer);
  if (config.latent) shape.kv_heads = 1;
  if (config.qk_norm_of_all_heads && shape.heads < config.num_attention_heads) {
    shape.all_heads = config.num_attention_heads;
    shape.all_kv_heads = config.num_key_value_heads;
    shape.first_counted_kv = partition.kv_heads.begin * heads_per_kv >= partition.heads.begin ? 0 : 1;
  }
  shape.widest_other = std::max(config.per_layer_width, config.laurel_rank);
  if (config.altup) shape.widest_other = std::max(shape.widest_other, config.hidden_size);
  if (const double part = config.gate_sparsity_of(layer); part > 0)  // in f32, as transformers computes it
    shape.gate_cutoff = std::numbers::sqrt2 *
                        at::erfinv(at::scalar_tensor(2 * static_cast<float>(part) - 1, at::kFloat)).item<double>();
  shape.all_mlp = config.intermediate_size * config.mlp_widths_of(layer);
  shape.rms_norm_eps = static_cast<float>(config.rms_norm_eps);
  shape.activation = config.activation;
  shape.gated_mlp = config.gated_mlp;
  shape.attention_scale = config.attention_multiplier > 0 ? static_cast<float>(config.attention_multiplier)
                                                          : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  shape.clip_qkv = static_cast<float>(config.clip_qkv);
  shape.swiglu_alpha = static_cast<float>(config.swiglu_alpha);
  shape.swiglu_limit = static_cast<float>(config.swiglu_limit);
  shape.qk_norm_after_rope = config.qk_norm_after_rope || config.qk_l2_norm;
  const bool scales_queries = !config.query_scale_without_rope || shape.rotary_dim == 0;
  shape.query_scale_beta = scales_queries ? static_cast<float>(config.query_scale_beta) : 0.0f;
  shape.query_scale_positions = config.query_scale_positions;
  shape.query_scale_shift = config.query_scale_shift;
  shape.chunked_windows = config.chunked_windows && shape.sliding_window > 0;
  shape.qk_l2_norm = config.qk_l2_norm && shape.rotary_dim > 0;
  shape.alibi_in_bf16 = config.alibi_in_bf16;
  for (std::uint64_t head = partition.heads.begin; config.alibi_max > 0 && head < partition.heads.end; ++head)
    shape.alibi_slopes.push_back(
        alibi_slope(config.alibi_max, static_cast<std::int64_t>(head), config.num_attention_heads));
  shape.attention_softcap = static_cast<float>(config.attn_logit_softcapping);
  return shape;
}

std::int64_t first_visible_key(const LayerShape& shape, std::int64_t position) {
  const std::int64_t window = shape.sliding_window;
  if (window == 0) return 0;
  return shape.chunked_windows ? position / window * window : std::max<std::int64_t>(0, position - window + 1);
}

float alibi_term(const LayerShape& shape, std::int64_t head, std::int64_t key, std::int64_t query) {
  const float slope = shape.alibi_slopes[static_cast<std::size_t>(head)];
  if (!shape.alibi_in_bf16) return slope * static_cast<float>(key - query);
  const float rounded = rounded_to_bf16(slope);
  const auto at = [&](std::int64_t position) {
    return rounded_to_bf16(rounded * rounded_to_bf16(static_cast<float>(position)));
  };
  return shape.attention_scale * (at(key) - at(query));
}

float query_scale(const LayerShape& shape, std::int64_t position) {
  const std::int64_t steps = (position + shape.query_scale_shift) / shape.query_scale_positions;
  return 1.0f + shape.query_scale_beta * std::log(1.0f + static_cast<float>(steps));
}

float embedding_multiplier(const ModelConfig& config, at::ScalarType dtype) {
  const at::ScalarType type = config.rounds_embedding_multiplier ? dtype : at::kFloat;
  return at::scalar_tensor(config.embedding_multiplier, type).to(at::kFloat).item<float>();
}

void refuse_dynamic_rope_with_cache(const PackedBatch& batch, const ModelConfig& config, std::int64_t length) {
  MAGISTER_CHECK(batch.past_S.empty(), ExitCode::kConfig,
                 "a sequence of {} tokens is longer than the {} positions up to which this model's rotary frequencies "
                 "stay as they "
                 "are (beyond them, all keys in the cache would have to be rotated again); generate shorter sequences",
                 length, positions_of_shared_rope(config));
}

}  // namespace magister
