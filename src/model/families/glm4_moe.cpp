// GLM-4.5 and dots.llm1: Llama's layers with norms on each head of q and k, dense layers first, then experts whose
// router takes sigmoids: a bias counts for the choice alone, only experts of the best groups can be chosen, and the
// weights have a factor. GLM-4.5 rotates half of each head. Sarvam 30B is GLM-4.5 that rotates whole heads, in files
// with other names and with q, k and v in one tensor.
// Source: transformers Glm4MoeConfig, Glm4MoeTopkRouter, Glm4MoeAttention, Dots1Config, Dots1Attention and
// SarvamMoEConfig and Glm4vMoeTextConfig, for Sarvam's names its conversion_mapping.py.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/latent_fields.h"
#include "model/families/needed_value.h"

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

// The text decoder of GLM-4.5V: its three positions of a token are one number in a text without images.
constexpr const char* kVComputes[] = {"n_routed_experts",
                                      "num_local_experts",
                                      "num_experts",
                                      "partial_rotary_factor",
                                      "mrope",
                                      "rope_parameters.mrope_section"};

void read_v(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.qkv_bias = source.boolean_or("attention_bias", true);
  config.qk_norm = false;
}

// The authors' config.json has the second names, transformers' the first.
constexpr std::pair<const char*, const char*> kSarvamOtherKeys[] = {{"n_routed_experts", "num_experts"},
                                                                    {"n_shared_experts", "num_shared_experts"},
                                                                    {"attention_bias", "use_qkv_bias"}};
constexpr std::pair<const char*, const char*> kSarvamRenames[] = {
    {"model.embed_tokens.weight", "model.word_embeddings.weight"},
    {"self_attn.qkv_proj.weight", "attention.query_key_value.weight"},
    {"self_attn.qkv_proj.bias", "attention.query_key_value.bias"},
    {"self_attn.o_proj.weight", "attention.dense.weight"},
    {"self_attn.q_norm.weight", "attention.query_layernorm.weight"},
    {"self_attn.k_norm.weight", "attention.key_layernorm.weight"},
    {"mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"}};
constexpr std::pair<const char*, std::int64_t> kSarvamDefaults[] = {
    {"n_routed_experts", 128},  {"num_experts_per_tok", 6},   {"moe_intermediate_size", 1024}, {"n_shared_experts", 1},
    {"num_key_value_heads", 4}, {"first_k_dense_replace", 1}, {"intermediate_size", 8192},     {"head_dim", 64}};

void read_sarvam(const HfConfig& source, ModelConfig& config) {
  // Keys of the authors' class, which transformers' does not read.
  require_text(source, "score_function", "sigmoid");
  need_flag(source, "moe_router_enable_expert_bias", true, true);
  need_flag(source, "use_bias", false, false);
  config.qkv_bias = source.boolean_or("attention_bias", false);
  config.qk_norm = source.boolean_or("use_qk_norm", true);
  config.fused_qkv_proj = true;
  config.rotary_dim = source.rotary_dim(config.head_dim);
  read_sigmoid_router(source, config);
  if (source.is_absent("routed_scaling_factor")) config.router.scaling = 2.5;
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

extern const Family kGlm4MoeFamily, kGlm4vMoeFamily, kSarvamMoeFamily, kDots1Family;
const Family kGlm4MoeFamily{.name = "glm4_moe",
                            .model_type = "glm4_moe",
                            .architecture = "Glm4MoeForCausalLM",
                            .read_hf = glm4_moe::read_hf,
                            .computes = glm4_moe::kComputes,
                            .classifier = "",
                            .hf_later_layers = "num_nextn_predict_layers",
                            .hf_defaults = glm4_moe::kDefaults};
const Family kGlm4vMoeFamily{.name = "glm4v_moe_text",
                             .model_type = "glm4v_moe_text",
                             .architecture = "Glm4vMoeForConditionalGeneration",
                             .read_hf = glm4_moe::read_v,
                             .computes = glm4_moe::kVComputes,
                             .classifier = "",
                             .hf_later_layers = "num_nextn_predict_layers",
                             .hf_defaults = glm4_moe::kDefaults};
const Family kSarvamMoeFamily{.name = "sarvam_moe",
                              .model_type = "sarvam_moe",
                              .architecture = "Glm4MoeForCausalLM",
                              .read_hf = glm4_moe::read_sarvam,
                              .computes = glm4_moe::kComputes,
                              .hf_renames = glm4_moe::kSarvamRenames,
                              .default_rope_theta = 8e6,
                              .classifier = "",
                              .published_architecture = "SarvamMoEForCausalLM",
                              .hf_other_keys = glm4_moe::kSarvamOtherKeys,
                              .hf_later_layers = "num_nextn_predict_layers",
                              .hf_defaults = glm4_moe::kSarvamDefaults};
const Family kDots1Family{.name = "dots1",
                          .model_type = "dots1",
                          .architecture = "Dots1ForCausalLM",
                          .read_hf = glm4_moe::read_dots,
                          .computes = glm4_moe::kDotsComputes,
                          .classifier = ""};

}  // namespace magister
