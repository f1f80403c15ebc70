// Sizes of a shard's part of a layer, from the sizes of the model.
#include "magister/model/layer_shape.h"

#include <ATen/ATen.h>

#include <cmath>

#include "magister/core/error.h"
#include "magister/model/rope.h"

namespace magister {

LayerShape shape_of(const ModelConfig& config, const Partition& partition, std::int64_t layer) {
  LayerShape shape;
  shape.hidden_size = config.hidden_size;
  shape.heads = static_cast<std::int64_t>(partition.heads.size());
  shape.kv_heads = static_cast<std::int64_t>(partition.kv_heads.size());
  shape.head_dim = config.head_dim;
  shape.mlp = static_cast<std::int64_t>(partition.mlp.size());
  shape.expert_mlp = static_cast<std::int64_t>(partition.expert.size());
  shape.num_experts = config.all_experts();
  shape.experts_per_token = config.experts_a_token();
  shape.num_shared_experts = config.num_shared_experts;
  shape.shared_expert_gate = config.shared_expert_gate;
  shape.router = config.router;
  shape.norm_topk_prob = config.norm_topk_prob;
  shape.sliding_window = config.slides(layer) ? config.sliding_window : 0;
  shape.rotary_dim = config.rotary_dim_of(layer);
  shape.rope_table = config.sliding_rope && config.slides(layer) ? 1 : 0;
  const auto heads_per_kv = static_cast<std::uint64_t>(config.num_attention_heads / config.num_key_value_heads);
  for (std::uint64_t head = partition.heads.begin; head < partition.heads.end; ++head) {
    shape.kv_of_head.push_back(static_cast<std::int64_t>(head / heads_per_kv - partition.kv_heads.begin));
  }
  if (config.qk_norm_of_all_heads && shape.heads < config.num_attention_heads) {
    shape.all_heads = config.num_attention_heads;
    shape.all_kv_heads = config.num_key_value_heads;
    shape.first_counted_kv = partition.kv_heads.begin * heads_per_kv >= partition.heads.begin ? 0 : 1;
  }
  shape.rms_norm_eps = static_cast<float>(config.rms_norm_eps);
  shape.activation = config.activation;
  shape.gated_mlp = config.gated_mlp;
  shape.attention_scale = config.attention_multiplier > 0 ? static_cast<float>(config.attention_multiplier)
                                                          : 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  shape.clip_qkv = static_cast<float>(config.clip_qkv);
  shape.swiglu_alpha = static_cast<float>(config.swiglu_alpha);
  shape.swiglu_limit = static_cast<float>(config.swiglu_limit);
  shape.qk_norm_after_rope = config.qk_norm_after_rope;
  shape.query_scale_beta = static_cast<float>(config.query_scale_beta);
  shape.query_scale_positions = config.query_scale_positions;
  shape.attention_softcap = static_cast<float>(config.attn_logit_softcapping);
  return shape;
}

float query_scale(const LayerShape& shape, std::int64_t position) {
  return 1.0f + shape.query_scale_beta * std::log(1.0f + static_cast<float>(position / shape.query_scale_positions));
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
