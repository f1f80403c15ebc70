// Gemma 4, text: Gemma 3's layers with plain norm weights, a softmax scale of 1 and a norm on v. Layers with full
// attention have heads of another size, whose values may be their keys, and turn the first part of a head alone. The
// last layers may use the keys and values of an earlier one. Vectors by layer, and experts beside the MLP, come with
// some sizes.
// Source: transformers Gemma4TextConfig, Gemma4TextAttention, Gemma4TextDecoderLayer and Gemma4TextModel.
#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/gemma_fields.h"

namespace magister {
namespace gemma4 {

constexpr const char* kComputes[] = {"gelu", "final_logit_softcapping", "rope_parameters.full_attention", "num_experts",
                                     "use_bidirectional_attention"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"vocab_size", 262144},
                                                              {"hidden_size", 2304},
                                                              {"intermediate_size", 9216},
                                                              {"num_hidden_layers", 30},
                                                              {"num_attention_heads", 8},
                                                              {"num_key_value_heads", 4},
                                                              {"head_dim", 256},
                                                              {"max_position_embeddings", 131072},
                                                              {"sliding_window", 512},
                                                              {"vocab_size_per_layer_input", 262144},
                                                              {"hidden_size_per_layer_input", 256}};
constexpr std::pair<const char*, const char*> kRenames[] = {{"mlp.gate.weight", "router.proj.weight"},
                                                            {"mlp.experts.gate_up_proj", "experts.gate_up_proj"},
                                                            {"mlp.experts.down_proj.weight", "experts.down_proj"},
                                                            {"mlp.experts.{}.down_proj.weight", "experts.down_proj"}};
constexpr const char* kByLayer[] = {"head_dim", "num_key_value_heads"};

// transformers 5 writes sizes by layer; published configs have those of layers with full attention under names of
// their own.
void read_full_sizes(const HfConfig& source, ModelConfig& config) {
  const std::int64_t N = config.num_hidden_layers;
  const std::int64_t head_dim = source.integer_or("global_head_dim", 512, 2, 1 << 12),
                     kv_heads = config.full_keys_are_values ? source.integer_or("num_global_key_value_heads",
                                                                                config.num_key_value_heads, 1, 1 << 16)
                                                            : config.num_key_value_heads;
  const bool listed = source.has("per_layer_config");
  const auto head_dims = source.by_layer("head_dim", kByLayer, N, config.head_dim),
             heads = source.by_layer("num_key_value_heads", kByLayer, N, config.num_key_value_heads);
  config.full_head_dim = listed ? head_dims.back() : head_dim;  // the last layer always has full attention
  config.full_kv_heads = listed ? heads.back() : kv_heads;
  if (config.full_head_dim == config.head_dim) config.full_head_dim = 0;
  if (config.full_kv_heads == config.num_key_value_heads) config.full_kv_heads = 0;
  for (std::int64_t i = 0; listed && i < N; ++i) {
    const auto at = static_cast<std::size_t>(i);
    MAGISTER_CHECK(
        head_dims[at] == config.head_dim_of(i) && heads[at] == config.kv_heads_of(i), ExitCode::kData,
        "{}: per_layer_config has {} heads of {} in layer {}, and {} of {} in another layer of its kind (only "
        "one size by kind of attention is supported); use another model",
        printable(source.path()), heads[at], head_dims[at], i, config.kv_heads_of(i), config.head_dim_of(i));
  }
}

void read_rope(const HfConfig& source, ModelConfig& config) {
  RopeConfig local;
  const auto full = source.rope_of("full_attention", config.max_position_embeddings, 1e6),
             sliding = source.rope_of("sliding_attention", config.max_position_embeddings, local.theta);
  MAGISTER_CHECK(!source.has("rope_parameters") || full, ExitCode::kData,
                 "{}: rope_parameters has no full_attention (the layers cannot be computed); fetch the config again",
                 printable(source.path()));
  if (!full) {
    config.rope.kind = RopeConfig::Kind::kProportional;
    config.rope.turning_part = 0.25;
  }
  config.sliding_rope = sliding.value_or(local);
}

void read_experts(const HfConfig& source, ModelConfig& config) {
  if (!source.boolean_or("enable_moe_block", false)) return;
  config.num_experts = source.integer("num_experts", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("top_k_experts", 1, kMostExperts);
  config.moe_intermediate_size = source.integer("moe_intermediate_size", 1, 1 << 22);
  config.norm_topk_prob = config.stacked_experts = config.fused_gate_up_proj = config.dense_beside_experts = true;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_gemma_fields(source, config);
  config.norm_weights_plus_one = false;
  MAGISTER_CHECK(source.text_or("use_bidirectional_attention", "vision") == "vision", ExitCode::kData,
                 "{}: use_bidirectional_attention is not \"vision\" (texts that attend to later tokens are not "
                 "supported, and results would be wrong); use another model",
                 printable(source.path()));
  config.norm_placement = NormPlacement::kBoth;
  config.attention_multiplier = 1.0;
  config.qk_norm = config.v_norm = config.layer_scalar = true;
  config.final_logit_softcapping = source.number_or("final_logit_softcapping", 0, 1e-3, 1e6);
  config.layer_is_sliding = source.sliding_layers(all_but_every(6, config.num_hidden_layers));
  if (!config.layer_is_sliding.empty()) config.layer_is_sliding.back() = false;  // as in transformers
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  config.full_keys_are_values = source.boolean_or("attention_k_eq_v", false);
  read_full_sizes(source, config);
  read_rope(source, config);
  config.shared_kv_layers = source.integer_or("num_kv_shared_layers", 0, 0, config.num_hidden_layers - 1);
  if (source.boolean_or("use_double_wide_mlp", false)) {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
      config.mlp_widths.push_back(config.has_own_kv(i) ? 1 : 2);
  }
  config.per_layer_width = source.integer_or("hidden_size_per_layer_input", 0, 0, 1 << 16);
  config.per_layer_vocab = source.integer("vocab_size_per_layer_input", 1, 1 << 24);
  MAGISTER_CHECK(
      config.per_layer_width == 0 || config.per_layer_vocab >= config.vocab_size, ExitCode::kData,
      "{}: vocab_size_per_layer_input is {} and vocab_size {} (tokens would have no vectors by layer); fetch "
      "the config again",
      printable(source.path()), config.per_layer_vocab, config.vocab_size);
  read_experts(source, config);
}

// The 12B model, without vectors by layer and experts.
constexpr std::pair<const char*, std::int64_t> kUnifiedDefaults[] = {{"vocab_size", 262144},
                                                                     {"hidden_size", 2304},
                                                                     {"intermediate_size", 9216},
                                                                     {"num_hidden_layers", 30},
                                                                     {"num_attention_heads", 8},
                                                                     {"num_key_value_heads", 4},
                                                                     {"head_dim", 256},
                                                                     {"max_position_embeddings", 262144},
                                                                     {"sliding_window", 1024},
                                                                     {"vocab_size_per_layer_input", 262144},
                                                                     {"hidden_size_per_layer_input", 0}};

void read_unified(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  MAGISTER_CHECK(config.per_layer_width == 0 && config.num_experts == 0, ExitCode::kData,
                 "{}: hidden_size_per_layer_input or enable_moe_block is set (the class of this model_type does not "
                 "read them, so it is unknown whether the model has such parts); use another model",
                 printable(source.path()));
}

}  // namespace gemma4

extern const Family kGemma4Family, kGemma4UnifiedFamily;
const Family kGemma4UnifiedFamily{.name = "gemma4_unified",
                                  .model_type = "gemma4_unified_text",
                                  .architecture = "Gemma4UnifiedForCausalLM",
                                  .read_hf = gemma4::read_unified,
                                  .computes = gemma4::kComputes,
                                  .default_rope_theta = 1e6,
                                  .classifier = "",
                                  .hf_defaults = gemma4::kUnifiedDefaults};
const Family kGemma4Family{.name = "gemma4",
                           .model_type = "gemma4_text",
                           .architecture = "Gemma4ForCausalLM",
                           .read_hf = gemma4::read_hf,
                           .computes = gemma4::kComputes,
                           .hf_renames = gemma4::kRenames,
                           .default_rope_theta = 1e6,
                           .classifier = "",
                           .hf_defaults = gemma4::kDefaults};

}  // namespace magister
