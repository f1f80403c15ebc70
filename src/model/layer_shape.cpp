// From a model's sizes and a shard's part of them.
#include "model/layer_shape.h"

#include <cmath>

#include "magister/core/error.h"

namespace magister {

LayerShape shape_of(const ModelConfig& config, const Partition& partition, std::int64_t layer) {
  LayerShape shape;
  shape.hidden_size = config.hidden_size;
  shape.heads = static_cast<std::int64_t>(partition.heads.size());
  shape.kv_heads = static_cast<std::int64_t>(partition.kv_heads.size());
  shape.head_dim = config.head_dim;
  shape.mlp = static_cast<std::int64_t>(partition.mlp.size());
  const bool slides = config.layer_is_sliding.empty() || config.layer_is_sliding[static_cast<std::size_t>(layer)];
  shape.sliding_window = slides ? config.sliding_window : 0;
  const auto heads_per_kv = static_cast<std::uint64_t>(config.num_attention_heads / config.num_key_value_heads);
  for (std::uint64_t head = partition.heads.begin; head < partition.heads.end; ++head) {
    shape.kv_of_head.push_back(static_cast<std::int64_t>(head / heads_per_kv - partition.kv_heads.begin));
  }
  shape.rms_norm_eps = static_cast<float>(config.rms_norm_eps);
  shape.activation = config.activation;
  shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return shape;
}

void refuse_dynamic_rope_with_cache(const PackedBatch& batch, const ModelConfig& config, std::int64_t length) {
  MAGISTER_CHECK(
      batch.past_S.empty(), ExitCode::kConfig,
      "a sequence of {} tokens is longer than the {} positions from which this model's dynamic rotary scaling "
      "starts (the keys in the cache would have to turn with every token); generate shorter sequences",
      length, config.max_position_embeddings);
}

}  // namespace magister
