// Trinity (afmoe) and Laguna: attention's outputs are multiplied by a gate before their last product, a sigmoid of as
// many numbers or a softplus of one for each head; norms on each head of q and k, windows, dense layers first, and a
// router that takes sigmoids with a bias for the choice. Trinity has norms on input and output of blocks, and only its
// layers with a window rotate. Laguna has a rotary embedding for each kind of layer.
// Source: transformers AfmoeConfig, AfmoeAttention, AfmoeTokenChoiceRouter, LagunaConfig, LagunaAttention,
// LagunaTopKRouter.
#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/latent_fields.h"
#include "model/families/needed_value.h"

namespace magister {
namespace gated_attention {

constexpr const char* kComputes[] = {"n_routed_experts", "num_local_experts", "num_experts", "yarn"};
constexpr std::pair<const char*, const char*> kAfmoeKeys[] = {{"n_routed_experts", "num_experts"},
                                                              {"n_shared_experts", "num_shared_experts"},
                                                              {"first_k_dense_replace", "num_dense_layers"},
                                                              {"routed_scaling_factor", "route_scale"}};
constexpr std::pair<const char*, const char*> kAfmoeRenames[] = {
    {"pre_feedforward_layernorm.weight", "pre_mlp_layernorm.weight"},
    {"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"},
    {"mlp.gate.weight", "mlp.router.gate.weight"},
    {"mlp.gate.e_score_correction_bias", "mlp.expert_bias"}};
constexpr std::pair<const char*, std::int64_t> kAfmoeDefaults[] = {
    {"n_routed_experts", 64}, {"n_shared_experts", 2},      {"num_experts_per_tok", 6}, {"moe_intermediate_size", 1408},
    {"head_dim", 128},        {"first_k_dense_replace", 1}, {"sliding_window", 1024}};

void read_afmoe(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.norm_placement = NormPlacement::kBoth;
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.attention_gate = AttentionGate::kSigmoid;
  if (source.boolean_or("mup_enabled", false))
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.layer_is_sliding = source.sliding_layers(
      all_but_every(source.integer_or("global_attn_every_n_layers", 4, 1, 1 << 12), config.num_hidden_layers));
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  config.layer_has_rope = config.layer_is_sliding;
  read_sigmoid_router(source, config);
  config.router.groups = config.router.chosen_groups = 1;
  config.norm_topk_prob = true;
  // Published files have these, which transformers does not read.
  require_text(source, "score_func", "sigmoid");
  need_flag(source, "route_norm", true, true);
}

constexpr const char* kLagunaComputes[] = {"num_local_experts", "num_experts", "yarn", "partial_rotary_factor",
                                           "rope_parameters.full_attention"};
constexpr std::pair<const char*, const char*> kLagunaRenames[] = {
    {"self_attn.gate_proj.weight", "self_attn.g_proj.weight"},
    {"mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias"},
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"}};
constexpr std::pair<const char*, std::int64_t> kLagunaDefaults[] = {{"head_dim", 128},
                                                                    {"num_key_value_heads", 8},
                                                                    {"sliding_window", 512},
                                                                    {"num_experts", 256},
                                                                    {"moe_intermediate_size", 512},
                                                                    {"num_experts_per_tok", 8},
                                                                    {"shared_expert_intermediate_size", 512}};

void read_gate(const HfConfig& source, ModelConfig& config) {
  config.attention_gate = AttentionGate::kSoftplus;
  config.gate_by_head = true;
  if (!source.is_text("gating")) return need_flag(source, "gating", true, true);
  const std::string kind = source.text_or("gating", "");
  MAGISTER_CHECK(kind == "per-head" || kind == "per-element", ExitCode::kData,
                 "{}: gating is \"{}\" (known: true, per-head, per-element); use another model",
                 printable(source.path()), printable(kind));
  config.gate_by_head = kind == "per-head";
}

void read_laguna_rope(const HfConfig& source, ModelConfig& config) {
  RopeConfig local;
  local.theta = 1e4;
  config.sliding_rope = source.rope_of("sliding_attention", config.max_position_embeddings, 1e4).value_or(local);
  const double absent = source.has("rope_parameters") ? 1.0 : 0.5;
  const std::int64_t full = source.rotary_dim(config.head_dim, absent, "full_attention"),
                     sliding = source.rotary_dim(config.head_dim, 1.0, "sliding_attention");
  config.rotary_dim = full;
  if (full != sliding) config.sliding_rotary_dim = sliding == 0 ? config.head_dim : sliding;
}

void read_laguna(const HfConfig& source, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_gate(source, config);
  for (const std::int64_t heads : source.integers("num_attention_heads_per_layer", 1, 1 << 16)) {
    MAGISTER_CHECK(heads == config.num_attention_heads, ExitCode::kData,
                   "{}: num_attention_heads_per_layer differs by layer (layers of several numbers of heads are not "
                   "supported); use another model",
                   printable(source.path()));
  }
  config.layer_is_sliding =
      source.sliding_layers(std::vector<bool>(static_cast<std::size_t>(config.num_hidden_layers), false));
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  read_laguna_rope(source, config);
  read_experts(source, config, "moe_intermediate_size", 256, 8);
  read_shared_experts(config, source.integer("shared_expert_intermediate_size", 1, 1 << 22));
  need_flag(source, "moe_apply_router_weight_on_input", false, false);
  MAGISTER_CHECK(source.number_or("moe_router_logit_softcapping", 0, 0, 1e6) == 0, ExitCode::kData,
                 "{}: moe_router_logit_softcapping is set (a cap of a router's logits is not supported, and results "
                 "would be wrong); use another model",
                 printable(source.path()));
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.router.choice_bias = config.norm_topk_prob = true;
  config.router.scaling = source.number_or("moe_routed_scaling_factor", 1.0, 1e-6, 1e6);
  config.layer_is_sparse = sparse_layers(source, 1, config.num_hidden_layers);
}

}  // namespace gated_attention

extern const Family kAfmoeFamily, kLagunaFamily;
const Family kAfmoeFamily{.name = "afmoe",
                          .model_type = "afmoe",
                          .architecture = "AfmoeForCausalLM",
                          .read_hf = gated_attention::read_afmoe,
                          .computes = gated_attention::kComputes,
                          .hf_renames = gated_attention::kAfmoeRenames,
                          .classifier = "",
                          .hf_keys = gated_attention::kAfmoeKeys,
                          .hf_defaults = gated_attention::kAfmoeDefaults};
const Family kLagunaFamily{.name = "laguna",
                           .model_type = "laguna",
                           .architecture = "LagunaForCausalLM",
                           .read_hf = gated_attention::read_laguna,
                           .computes = gated_attention::kLagunaComputes,
                           .hf_renames = gated_attention::kLagunaRenames,
                           .default_rope_theta = 500000.0,
                           .classifier = "",
                           .hf_defaults = gated_attention::kLagunaDefaults};

}  // namespace magister
