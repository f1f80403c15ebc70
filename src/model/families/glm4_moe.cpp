// GLM-4.5 and dots.llm1: Llama's layers with norms on each head of q and k, dense layers first, then experts whose
// router takes sigmoids: a bias counts for the choice alone, only experts of the best groups can be chosen, and the
// weights have a factor. GLM-4.5 rotates half of each head.
// Source: transformers Glm4MoeConfig, Glm4MoeTopkRouter, Glm4MoeAttention, Dots1Config and Dots1Attention.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace glm4_moe {

constexpr const char* kComputes[] = {"n_routed_experts", "num_local_experts", "num_experts", "use_qk_norm",
                                     "partial_rotary_factor"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"n_routed_experts", 128}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 1408},
    {"n_shared_experts", 1},   {"num_key_value_heads", 8}, {"first_k_dense_replace", 1}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.5);
  config.qkv_bias = source.boolean_or("attention_bias", false);
  config.qk_norm = source.boolean_or("use_qk_norm", false);
  read_sigmoid_router(source, config);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
}

constexpr const char* kDotsComputes[] = {"n_routed_experts", "num_local_experts", "num_experts"};

void read_dots(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.qk_norm = true;
  if (!source.is_null("sliding_window")) {
    const std::int64_t window = source.integer_or("sliding_window", 4096, 1, INT32_MAX);
    const std::int64_t first = source.integer_or("max_window_layers", 62, 0, INT32_MAX);
    std::vector<bool> layers;
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(i >= first);
    config.layer_is_sliding = source.sliding_layers(std::move(layers));
    config.sliding_window = window;
  } else {
    for (const bool slides : source.sliding_layers({})) {
      MAGISTER_CHECK(!slides, ExitCode::kData,
                     "{}: layer_types has sliding_attention, but sliding_window is null (the layers cannot be "
                     "computed); fetch the config again",
                     printable(source.path()));
    }
  }
  read_sigmoid_router(source, config);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
}

}  // namespace glm4_moe

extern const Family kGlm4MoeFamily, kDots1Family;
const Family kGlm4MoeFamily{.name = "glm4_moe",
                            .model_type = "glm4_moe",
                            .architecture = "Glm4MoeForCausalLM",
                            .read_hf = glm4_moe::read_hf,
                            .computes = glm4_moe::kComputes,
                            .classifier = "",
                            .hf_later_layers = "num_nextn_predict_layers",
                            .hf_defaults = glm4_moe::kDefaults};
const Family kDots1Family{.name = "dots1",
                          .model_type = "dots1",
                          .architecture = "Dots1ForCausalLM",
                          .read_hf = glm4_moe::read_dots,
                          .computes = glm4_moe::kDotsComputes,
                          .classifier = ""};

}  // namespace magister
