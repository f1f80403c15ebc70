// GLM-4.7-Flash: DeepSeek-V3's latent attention with GLM-4.5's experts and router.
// Source: transformers Glm4MoeLiteConfig, Glm4MoeLiteAttention and Glm4MoeLiteTopkRouter.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/latent_fields.h"

namespace magister {
namespace glm4_moe_lite {

constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"kv_lora_rank", 512},     {"q_lora_rank", 768},     {"qk_nope_head_dim", 192}, {"qk_rope_head_dim", 64},
    {"v_head_dim", 256},       {"n_routed_experts", 64}, {"n_shared_experts", 1},   {"moe_intermediate_size", 1536},
    {"num_experts_per_tok", 4}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  read_latent(source, config);
  read_sigmoid_router(source, config);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  if (source.is_absent("routed_scaling_factor")) config.router.scaling = 1.8;
  // The class reads mlp_layer_types alone; published files say first_k_dense_replace.
  config.layer_is_sparse = sparse_layers(source, 1, config.num_hidden_layers);
  check_dense_layers(source, config);
}

}  // namespace glm4_moe_lite

extern const Family kGlm4MoeLiteFamily;
const Family kGlm4MoeLiteFamily{.name = "glm4_moe_lite",
                                .model_type = "glm4_moe_lite",
                                .architecture = "Glm4MoeLiteForCausalLM",
                                .read_hf = glm4_moe_lite::read_hf,
                                .computes = kLatentComputes,
                                .classifier = "",
                                .hf_later_layers = "num_nextn_predict_layers",
                                .hf_defaults = glm4_moe_lite::kDefaults};

}  // namespace magister
