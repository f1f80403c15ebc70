// LayerShape: the sizes of one decoder layer's part on one shard, for every backend.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/model_config.h"
#include "magister/model/partition.h"
#include "magister/model/routes.h"

namespace magister {

struct LayerShape {
  std::int64_t hidden_size = 0;
  std::int64_t heads = 0;                               // H
  std::int64_t kv_heads = 0;                            // K
  std::int64_t head_dim = 0;                            // E
  std::int64_t mlp = 0;                                 // F
  std::int64_t expert_mlp = 0;                          // F of each expert, in models that have them
  std::int64_t shared_mlp = 0;                          // F of each shared expert
  std::int64_t num_experts = 0, experts_per_token = 0;  // shared experts, the last ones, included
  std::int64_t num_shared_experts = 0;
  bool shared_expert_gate = false;
  RouterConfig router;
  std::int64_t sliding_window = 0;       // 0: none
  std::int64_t rotary_dim = 0;           // rotated dimensions at the start of a head; 0: none
  std::size_t rope_table = 0;            // rotary table of this layer: 0: ModelConfig::rope, 1: sliding_rope
  std::vector<std::int64_t> kv_of_head;  // [H], index into this shard's KV heads
  // Only for RMS norms of q and k over all heads of a layer that is split over shards: the numbers of query and KV
  // heads of the whole model, and the first local KV head whose squares this shard adds to the sum (an earlier shard
  // adds those of a KV head that both hold). all_heads is 0 where no sum over shards is needed.
  std::int64_t all_heads = 0, all_kv_heads = 0, first_counted_kv = 0;
  float rms_norm_eps = 1e-6f;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  float attention_scale = 1.0f;
  float attention_softcap = 0.0f;                  // 0: none
  float clip_qkv = 0.0f;                           // 0: none
  float swiglu_alpha = 0.0f, swiglu_limit = 0.0f;  // see ModelConfig
  bool norm_topk_prob = false;                     // see ModelConfig
  bool qk_norm_after_rope = false;                 // see ModelConfig
  bool has_own_kv = true;                          // false: kv_heads are those of an earlier layer
  bool keys_are_values = false;                    // see ModelConfig
  std::int64_t widest_other = 0;                   // numbers of a row of the widest product outside attention and MLPs
  // Standard deviations above the mean of a token's gates from which they pass, see ModelConfig::gate_sparsity;
  // nothing: all pass. The mean is over all_mlp columns, those of all shards.
  std::optional<double> gate_cutoff{};
  std::int64_t all_mlp = 0;
  float query_scale_beta = 0.0f;  // see ModelConfig
  std::int64_t query_scale_positions = 0, query_scale_shift = 0;
  bool chunked_windows = false;     // see ModelConfig
  bool qk_l2_norm = false;          // this layer has it, see ModelConfig
  std::vector<float> alibi_slopes;  // [H]; empty: no ALiBi
  bool alibi_in_bf16 = false;       // see ModelConfig
  std::int64_t own_value_dim = 0;   // ModelConfig::value_dim
  float value_scale = 1.0f;         // see ModelConfig
  AttentionGate gate = AttentionGate::kNone;
  std::int64_t gate_numbers = 0;         // of this shard's heads; as many for each head
  std::optional<LatentConfig> latent{};  // kv_heads is then 1: the latent
  bool has_indexer = false;              // see ModelConfig::chooses_keys
  // Linear attention: heads are those of values, kv_heads those of keys, and head_dim is that of keys.
  std::optional<DeltaConfig> delta{};
  // False for attention that fused operations of libraries do not compute: other masks than windows, biases of scores.
  bool has_usual_scores() const { return !chunked_windows && alibi_slopes.empty(); }
  RouterRule router_rule() const {
    return {num_experts - num_shared_experts,
            experts_per_token - num_shared_experts,
            norm_topk_prob,
            router,
            num_shared_experts,
            shared_expert_gate};
  }
  std::int64_t own_kv_heads() const { return has_own_kv ? kv_heads : 0; }
  // Numbers of a row with its queries, keys and values. The product of a layer whose keys are its values gives the
  // first ones alone.
  std::int64_t qkv_features() const {
    if (delta) return 2 * kv_heads * head_dim + heads * value_dim();
    return latent ? heads * head_dim : (heads + own_kv_heads()) * head_dim + own_kv_heads() * value_dim();
  }
  // True where an indexer chooses some of the keys that a query at this position would see.
  bool is_sparse_at(std::int64_t position) const {
    return latent && latent->indexer && position >= latent->indexer->top_k;
  }
  std::int64_t value_dim() const { return latent ? latent->value_dim : own_value_dim > 0 ? own_value_dim : head_dim; }
};

// Local.
LayerShape shape_of(const ModelConfig& config, const Partition& partition, std::int64_t layer);

// The first key that a query at this position sees.
std::int64_t first_visible_key(const LayerShape& shape, std::int64_t position);

// ALiBi's term of a score, for a head of this shard and two positions; it is 0 for key == query.
float alibi_term(const LayerShape& shape, std::int64_t head, std::int64_t key, std::int64_t query);

// The factor of queries at this position after rope, for a layer with query_scale_beta.
float query_scale(const LayerShape& shape, std::int64_t position);

// The factor of the embeddings, rounded to `dtype` first if the model says so.
float embedding_multiplier(const ModelConfig& config, at::ScalarType dtype);

// Throws Error(kConfig) where the batch has a cache: the rotary frequencies of dynamic scaling change with the length,
// so all cached keys would have to be rotated again.
void refuse_dynamic_rope_with_cache(const PackedBatch& batch, const ModelConfig& config, std::int64_t length);

}  // namespace magister
