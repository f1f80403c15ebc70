// ERNIE 4.5 and Helium: Llama's layers with rotary pairs of neighbours. ERNIE's mixture has shared experts, and a
// bias that counts for the choice of experts alone.
// Source: transformers Ernie4_5Config, Ernie4_5Attention, Ernie4_5_MoeTopKRouter, HeliumConfig and HeliumAttention.
#include "model/families/expert_fields.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace ernie4_5 {

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 2;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.qkv_bias = config.o_bias = config.mlp_bias = source.boolean_or("use_bias", false);
}

void read_helium(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 20;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-8;
  config.qkv_bias = source.boolean_or("attention_bias", false);
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  need_even_heads(source, config);
}

constexpr const char* kMoeComputes[] = {"num_experts", "num_local_experts"};
constexpr std::pair<const char*, const char*> kMoeKeys[] = {{"num_experts", "moe_num_experts"},
                                                            {"num_experts_per_tok", "moe_k"}};
constexpr std::pair<const char*, const char*> kMoeRenames[] = {
    {"mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias"}};
constexpr std::pair<const char*, std::int64_t> kMoeDefaults[] = {
    {"num_key_value_heads", 4}, {"moe_intermediate_size", 1536}, {"moe_num_shared_experts", 2}};

void read_moe(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  need_flag(source, "use_bias", false, false);
  read_experts(source, config, "moe_intermediate_size", 64, 6);
  config.num_shared_experts = source.integer("moe_num_shared_experts", 0, kMostExperts);
  config.router.choice_bias = config.router.choice_bias_is_row = true;
  config.router.least_sum = source.number_or("moe_norm_min", 1e-12, 0, 1);
  config.norm_topk_prob = true;
  const std::int64_t N = config.num_hidden_layers, step = source.integer_or("moe_layer_interval", 1, 1, 1 << 12),
                     first = source.integer_or("moe_layer_start_index", 1, 0, 1 << 12),
                     given = source.integer_or("moe_layer_end_index", -1, -1, 1 << 12),
                     last = given < 0 ? N - 1 : given;
  for (std::int64_t i = 0; i < N; ++i) config.layer_is_sparse.push_back((i + 1) % step == 0 && i >= first && i <= last);
}

}  // namespace ernie4_5

extern const Family kErnie45Family, kHeliumFamily, kErnie45MoeFamily;
const Family kErnie45MoeFamily{.name = "ernie4_5_moe",
                               .model_type = "ernie4_5_moe",
                               .architecture = "Ernie4_5_MoeForCausalLM",
                               .read_hf = ernie4_5::read_moe,
                               .computes = ernie4_5::kMoeComputes,
                               .hf_renames = ernie4_5::kMoeRenames,
                               .hf_interleaved_rope_rows = true,
                               .default_rope_theta = 500000.0,
                               .classifier = "",
                               .hf_keys = ernie4_5::kMoeKeys,
                               .hf_defaults = ernie4_5::kMoeDefaults};
const Family kErnie45Family{.name = "ernie4_5",
                            .model_type = "ernie4_5",
                            .architecture = "Ernie4_5ForCausalLM",
                            .read_hf = ernie4_5::read_hf,
                            .hf_interleaved_rope_rows = true,
                            .default_rope_theta = 500000.0,
                            .classifier = ""};
const Family kHeliumFamily{.name = "helium",
                           .model_type = "helium",
                           .architecture = "HeliumForCausalLM",
                           .read_hf = ernie4_5::read_helium,
                           .hf_interleaved_rope_rows = true,
                           .default_rope_theta = 100000.0};

}  // namespace magister
