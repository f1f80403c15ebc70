// DeepSeek-V2, DeepSeek-V3, Kimi K2, A.X K1: latent attention, dense layers first, then experts with shared ones. V2's
// router takes softmax probabilities, and a group counts as its best; V3's takes sigmoids with a bias for the choice.
// A.X K1 has a norm on what the experts add. Sarvam 105B is DeepSeek-V3 whose authors' files have other keys; their
// use_qk_norm changes nothing.
// Sources: transformers DeepseekV2Config, DeepseekV2TopkRouter, DeepseekV3Config, DeepseekV3TopkRouter, AXK1Config,
// AXK1MoE and SarvamMLAConfig; Kimi K2's config.json, which names DeepseekV3ForCausalLM.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/latent_fields.h"

namespace magister {
namespace deepseek {

constexpr std::pair<const char*, std::int64_t> kDefaultsV2[] = {
    {"kv_lora_rank", 512}, {"q_lora_rank", 1536},    {"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64},
    {"v_head_dim", 128},   {"n_routed_experts", 64}, {"n_shared_experts", 2},   {"moe_intermediate_size", 1407}};
constexpr std::pair<const char*, std::int64_t> kDefaultsV3[] = {
    {"kv_lora_rank", 512}, {"q_lora_rank", 1536},     {"qk_nope_head_dim", 128},  {"qk_rope_head_dim", 64},
    {"v_head_dim", 128},   {"n_routed_experts", 256}, {"n_shared_experts", 1},    {"moe_intermediate_size", 2048},
    {"n_group", 8},        {"topk_group", 4},         {"num_experts_per_tok", 8}, {"first_k_dense_replace", 3}};

void read_v2(const HfConfig& source, ModelConfig& config) {
  read_latent(source, config);
  read_sigmoid_router(source, config);
  const std::string method = source.text_or("topk_method", "greedy");
  MAGISTER_CHECK(method == "greedy" || method == "group_limited_greedy", ExitCode::kData,
                 "{}: topk_method is \"{}\" (known: greedy, group_limited_greedy); use another model",
                 printable(source.path()), printable(method));
  require_text(source, "scoring_func", "softmax");
  require_every_layer(source);
  MAGISTER_CHECK(!source.boolean_or("norm_topk_prob", false) && !source.boolean_or("mlp_bias", false), ExitCode::kData,
                 "{}: norm_topk_prob or mlp_bias is true (transformers ignores the one, biases of experts are not "
                 "computed, and results would be wrong); use another model",
                 printable(source.path()));
  RouterConfig router;
  router.scaling = config.router.scaling;
  if (method == "group_limited_greedy") {
    router.groups = config.router.groups;
    router.chosen_groups = config.router.chosen_groups;
    router.groups_by_best = true;
  }
  config.router = router;
}

void read_v3(const HfConfig& source, ModelConfig& config) {
  read_latent(source, config);
  read_sigmoid_router(source, config);
  require_text(source, "scoring_func", "sigmoid");
  require_text(source, "topk_method", "noaux_tc");
  require_every_layer(source);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  if (source.is_absent("routed_scaling_factor")) config.router.scaling = 2.5;
}

constexpr const char* kSarvamComputes[] = {
    "kv_lora_rank",      "yarn",        "deepseek_yarn",         "n_routed_experts",
    "num_local_experts", "num_experts", "partial_rotary_factor", "use_qk_norm"};
constexpr std::pair<const char*, const char*> kSarvamOtherKeys[] = {{"n_routed_experts", "num_experts"},
                                                                    {"n_shared_experts", "num_shared_experts"}};
constexpr std::pair<const char*, std::int64_t> kSarvamDefaults[] = {
    {"kv_lora_rank", 512},           {"qk_nope_head_dim", 128},
    {"qk_rope_head_dim", 64},        {"v_head_dim", 128},
    {"n_routed_experts", 128},       {"n_shared_experts", 1},
    {"moe_intermediate_size", 2048}, {"num_experts_per_tok", 8},
    {"first_k_dense_replace", 1},    {"intermediate_size", 16384}};

constexpr std::pair<const char*, const char*> kAxRenames[] = {
    {"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"}};
constexpr std::pair<const char*, std::int64_t> kDefaultsAx[] = {
    {"kv_lora_rank", 512}, {"q_lora_rank", 1536},     {"qk_nope_head_dim", 128},  {"qk_rope_head_dim", 64},
    {"v_head_dim", 128},   {"n_routed_experts", 192}, {"n_shared_experts", 1},    {"moe_intermediate_size", 2048},
    {"n_group", 8},        {"topk_group", 4},         {"num_experts_per_tok", 8}, {"num_key_value_heads", 64}};

void read_ax(const HfConfig& source, ModelConfig& config) {
  read_v3(source, config);
  const std::int64_t dense = source.integer_or("first_k_dense_replace", 1, 0, config.num_hidden_layers);
  config.layer_is_sparse = sparse_layers(source, dense, config.num_hidden_layers);
  config.sparse_norm = true;
}

}  // namespace deepseek

extern const Family kAxK1Family;
const Family kAxK1Family{.name = "axk1",
                         .model_type = "axk1",
                         .architecture = "AXK1ForCausalLM",
                         .read_hf = deepseek::read_ax,
                         .computes = kLatentComputes,
                         .hf_renames = deepseek::kAxRenames,
                         .classifier = "",
                         .hf_defaults = deepseek::kDefaultsAx};
extern const Family kSarvamMlaFamily;
const Family kSarvamMlaFamily{.name = "sarvam_mla",
                              .model_type = "sarvam_mla",
                              .architecture = "DeepseekV3ForCausalLM",
                              .read_hf = deepseek::read_v3,
                              .computes = deepseek::kSarvamComputes,
                              .classifier = "",
                              .published_architecture = "SarvamMLAForCausalLM",
                              .hf_other_keys = deepseek::kSarvamOtherKeys,
                              .hf_later_layers = "num_nextn_predict_layers",
                              .hf_defaults = deepseek::kSarvamDefaults};
extern const Family kDeepseekV2Family, kDeepseekV3Family, kKimiK2Family;
const Family kDeepseekV2Family{.name = "deepseek_v2",
                               .model_type = "deepseek_v2",
                               .architecture = "DeepseekV2ForCausalLM",
                               .read_hf = deepseek::read_v2,
                               .computes = kLatentComputes,
                               .hf_defaults = deepseek::kDefaultsV2};
const Family kDeepseekV3Family{.name = "deepseek_v3",
                               .model_type = "deepseek_v3",
                               .architecture = "DeepseekV3ForCausalLM",
                               .read_hf = deepseek::read_v3,
                               .computes = kLatentComputes,
                               .hf_later_layers = "num_nextn_predict_layers",
                               .hf_defaults = deepseek::kDefaultsV3};
const Family kKimiK2Family{.name = "kimi_k2",
                           .model_type = "kimi_k2",
                           .architecture = "DeepseekV3ForCausalLM",
                           .read_hf = deepseek::read_v3,
                           .computes = kLatentComputes,
                           .hf_later_layers = "num_nextn_predict_layers",
                           .hf_defaults = deepseek::kDefaultsV3};

}  // namespace magister
