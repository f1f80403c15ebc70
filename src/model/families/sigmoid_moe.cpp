// Mixtures whose router takes sigmoids, each with parts that other families have:
// Solar Open is like Llama. HY 3 has norms on each head of q and k, and a dense layer first. Kolibri 1 has norms on the
// input and the output of blocks, and adds the bias for the choice to logits. Flint has attention sinks and no bias for
// the choice. In the last two, only the layers with a window rotate.
// Source: transformers SolarOpenConfig, HYV3Config, HYV3TopKRouter, HYV3MoE, Kolibri1Config, Kolibri1TopKRouter,
// Kolibri1DecoderLayer, FlintConfig, FlintTopKRouter and FlintAttention.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/needed_value.h"

namespace magister {
namespace sigmoid_moe {

constexpr const char* kComputes[] = {"n_routed_experts", "num_local_experts", "num_experts", "yarn"};

constexpr const char* kSolarComputes[] = {"n_routed_experts", "num_local_experts", "num_experts", "yarn",
                                          "partial_rotary_factor"};
constexpr std::pair<const char*, std::int64_t> kSolarDefaults[] = {
    {"n_routed_experts", 128}, {"n_shared_experts", 1},    {"num_experts_per_tok", 8}, {"moe_intermediate_size", 1280},
    {"head_dim", 128},         {"num_key_value_heads", 8}, {"intermediate_size", 1}};

void read_solar(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.qkv_bias = source.boolean_or("attention_bias", false);
  read_sigmoid_router(source, config);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.layer_is_sparse.clear();
  config.intermediate_size = config.moe_intermediate_size;  // no layer has another MLP
}

constexpr std::pair<const char*, const char*> kHyKeys[] = {{"n_routed_experts", "num_experts"},
                                                           {"n_shared_experts", "num_shared_experts"},
                                                           {"routed_scaling_factor", "router_scaling_factor"}};
constexpr std::pair<const char*, const char*> kHyRenames[] = {
    {"mlp.gate.weight", "mlp.router.gate.weight"},
    {"mlp.gate.e_score_correction_bias", "mlp.expert_bias"},
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_mlp.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_mlp.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_mlp.down_proj.weight"}};
constexpr std::pair<const char*, std::int64_t> kHyDefaults[] = {
    {"n_routed_experts", 192},       {"n_shared_experts", 1}, {"num_experts_per_tok", 8},
    {"moe_intermediate_size", 1536}, {"head_dim", 128},       {"num_key_value_heads", 8}};

void read_hy(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  need_flag(source, "mlp_bias", false, false);
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_sigmoid_router(source, config);
  config.router.groups = config.router.chosen_groups = 1;
  config.router.scaling = source.number_or("routed_scaling_factor", 2.826, 1e-6, 1e6);
  config.norm_topk_prob = true;
  config.layer_is_sparse = sparse_layers(source, 1, config.num_hidden_layers);
  check_dense_layers(source, config);
}

// Only the layers with a window rotate; q and k have norms.
void read_turning_windows(const HfConfig& source, ModelConfig& config, std::vector<bool> absent) {
  config.qk_norm = true;
  config.layer_is_sliding = source.sliding_layers(std::move(absent));
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  config.layer_has_rope = config.layer_is_sliding;
}

constexpr std::pair<const char*, const char*> kKolibriRenames[] = {
    {"post_attention_layernorm.weight", "post_attn_norm.weight"},
    {"pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffn_norm.weight"},
    {"mlp.gate.e_score_correction_bias", "moe.router.expert_bias"}};
constexpr std::pair<const char*, std::int64_t> kKolibriDefaults[] = {{"head_dim", 128},
                                                                     {"num_key_value_heads", 4},
                                                                     {"sliding_window", 513},
                                                                     {"moe_intermediate_size", 512},
                                                                     {"shared_expert_intermediate_size", 512},
                                                                     {"intermediate_size", 1}};

void read_kolibri(const HfConfig& source, ModelConfig& config) {
  config.norm_placement = NormPlacement::kBoth;
  read_turning_windows(source, config, all_but_every(5, config.num_hidden_layers));
  read_experts(source, config, "moe_intermediate_size", 384, 6);
  read_shared_experts(config, source.integer("shared_expert_intermediate_size", 1, 1 << 22));
  config.intermediate_size = config.moe_intermediate_size;  // no layer has another MLP
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.router.choice_bias = config.router.chooses_by_logits = true;
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
}

constexpr std::pair<const char*, const char*> kFlintRenames[] = {
    {"self_attn.sinks", "self_attn.softmax_offset"},
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"}};
constexpr std::pair<const char*, std::int64_t> kFlintDefaults[] = {
    {"head_dim", 128},         {"num_key_value_heads", 4},     {"sliding_window", 513},
    {"num_experts", 256},      {"moe_intermediate_size", 512}, {"shared_expert_intermediate_size", 1024},
    {"num_experts_per_tok", 6}};

void read_flint(const HfConfig& source, ModelConfig& config) {
  const std::int64_t L = config.num_hidden_layers;
  std::vector<bool> slides;
  for (std::int64_t i = 0; i < L; ++i) slides.push_back(i >= 2 && i % 4 != 1 && i != L - 1);
  read_turning_windows(source, config, std::move(slides));
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.attention_sinks = true;
  read_experts(source, config, "moe_intermediate_size", 256, 6);
  read_shared_experts(config, source.integer("shared_expert_intermediate_size", 1, 1 << 22));
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.layer_is_sparse = stepped_sparse_layers(source, L);
  for (std::int64_t i = 0; !source.has("mlp_only_layers") && i < std::min<std::int64_t>(2, L); ++i)
    config.layer_is_sparse[static_cast<std::size_t>(i)] = false;
}

}  // namespace sigmoid_moe

extern const Family kSolarOpenFamily, kHyV3Family, kKolibri1Family, kFlintFamily;
const Family kSolarOpenFamily{.name = "solar_open",
                              .model_type = "solar_open",
                              .architecture = "SolarOpenForCausalLM",
                              .read_hf = sigmoid_moe::read_solar,
                              .computes = sigmoid_moe::kSolarComputes,
                              .default_rope_theta = 1e6,
                              .classifier = "",
                              .hf_defaults = sigmoid_moe::kSolarDefaults};
const Family kHyV3Family{.name = "hy_v3",
                         .model_type = "hy_v3",
                         .architecture = "HYV3ForCausalLM",
                         .read_hf = sigmoid_moe::read_hy,
                         .computes = sigmoid_moe::kComputes,
                         .hf_renames = sigmoid_moe::kHyRenames,
                         .default_rope_theta = 11158840.0,
                         .classifier = "",
                         .hf_keys = sigmoid_moe::kHyKeys,
                         .hf_later_layers = "num_nextn_predict_layers",
                         .hf_defaults = sigmoid_moe::kHyDefaults};
const Family kKolibri1Family{.name = "kolibri1",
                             .model_type = "kolibri1",
                             .architecture = "Kolibri1ForCausalLM",
                             .read_hf = sigmoid_moe::read_kolibri,
                             .computes = sigmoid_moe::kComputes,
                             .hf_renames = sigmoid_moe::kKolibriRenames,
                             .classifier = "",
                             .hf_defaults = sigmoid_moe::kKolibriDefaults};
const Family kFlintFamily{.name = "flint",
                          .model_type = "flint",
                          .architecture = "FlintForCausalLM",
                          .read_hf = sigmoid_moe::read_flint,
                          .computes = sigmoid_moe::kComputes,
                          .hf_renames = sigmoid_moe::kFlintRenames,
                          .classifier = "",
                          .hf_defaults = sigmoid_moe::kFlintDefaults};

}  // namespace magister
