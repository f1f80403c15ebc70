// Rows of the parameter table for latent attention (MLA), up to the heads, and of its indexer; the output product is as
// in other models.
// Source: transformers' DeepseekV3Attention and DeepseekV32Indexer; names of GGUF as in llama.cpp's deepseek2.
#include "magister/model/parameter_table.h"

namespace magister {

std::vector<LayerParameter> latent_parameters(const ModelConfig& config, std::int64_t layer) {
  using Layer = TensorNames::Layer;
  using enum Division;
  constexpr FusedProduct kQkv = FusedProduct::kQkv;
  const LatentConfig& latent = *config.latent;
  const std::int64_t D = config.hidden_size, H = config.num_attention_heads, C = latent.rank, L = latent.query_rank;
  std::vector<LayerParameter> all;
  if (L > 0) {
    all.push_back({&Layer::q_proj, "self_attn.q_a_proj.weight", "attn_q_a.weight", {L, D}, kWhole, kQkv});
  } else {
    all.push_back(
        {&Layer::q_proj, "self_attn.q_proj.weight", "attn_q.weight", {H * config.head_dim, D}, kHeadRows, kQkv});
  }
  all.push_back({&Layer::k_proj,
                 "self_attn.kv_a_proj_with_mqa.weight",
                 "attn_kv_a_mqa.weight",
                 {latent.token_width(), D},
                 kWhole,
                 kQkv});
  if (config.qkv_bias && L > 0) all.push_back({&Layer::q_bias, "self_attn.q_a_proj.bias", "attn_q_a.bias", {L}});
  if (config.qkv_bias)
    all.push_back({&Layer::k_bias, "self_attn.kv_a_proj_with_mqa.bias", "attn_kv_a_mqa.bias", {latent.token_width()}});
  if (L > 0) {
    all.push_back({&Layer::q_norm, "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", {L}});
    all.push_back({&Layer::q_up_proj,
                   "self_attn.q_b_proj.weight",
                   "attn_q_b.weight",
                   {H * config.head_dim, L},
                   kHeadRows,
                   FusedProduct::kQueryUp});
  }
  all.push_back({&Layer::k_norm, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", {C}});
  all.push_back({&Layer::latent_up_proj,
                 "self_attn.kv_b_proj.weight",
                 "attn_kv_b.weight",
                 {H * (latent.nope_dim + latent.value_dim), C},
                 kHeadRows,
                 FusedProduct::kLatentUp});
  if (config.chooses_keys(layer)) {
    const std::int64_t heads = latent.indexer->heads, E = latent.indexer->head_dim;
    all.push_back(
        {&Layer::index_q_proj, "self_attn.indexer.wq_b.weight", "", {heads * E, L}, kWhole, FusedProduct::kIndexQuery});
    all.push_back({&Layer::index_k_proj, "self_attn.indexer.wk.weight", "", {E, D}, kWhole, FusedProduct::kIndexKey});
    all.push_back({&Layer::index_k_norm, "self_attn.indexer.k_norm.weight", "", {E}});
    all.push_back({&Layer::index_k_norm_bias, "self_attn.indexer.k_norm.bias", "", {E}});
    all.push_back({&Layer::index_weights, "self_attn.indexer.weights_proj.weight", "", {heads, D}});
  }
  return all;
}

}  // namespace magister
