// MiMo-V2-Flash: windows of 128 keys in five of six layers, with attention sinks and twice the KV heads there, a rotary
// base for each kind of layer, of which a third of each head turns, values narrower than keys and times a number, a
// dense layer first, then DeepSeek-V3's router without shared experts.
// Published configs have further keys (hybrid_layer_pattern, swa_*), which transformers does not read: it computes the
// published model's values whatever they say.
// Source: transformers MiMoV2FlashConfig, MiMoV2FlashAttention and MiMoV2FlashRotaryEmbedding.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace mimo_v2 {

constexpr const char* kComputes[] = {"n_routed_experts", "num_local_experts", "num_experts", "partial_rotary_factor",
                                     "rope_parameters.full_attention"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"self_attn.sinks", "self_attn.attention_sink_bias"}};
constexpr double kTheta = 5e6, kSlidingTheta = 1e4, kRotated = 0.334, kValueScale = 0.707;
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"head_dim", 192},         {"v_head_dim", 128},        {"num_key_value_heads", 4},     {"sliding_window", 129},
    {"n_routed_experts", 256}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 2048}};

void need_number(const HfConfig& source, const char* key, double computed) {
  const double given = source.number_or(key, computed, 0, 1e15);
  MAGISTER_CHECK(given == computed, ExitCode::kData,
                 "{}: {} is {} (transformers does not read it and computes {}, so which one the weights have is "
                 "unknown); use another model",
                 printable(source.path()), key, given, computed);
}

void check_published_keys(const HfConfig& source, const ModelConfig& config) {
  need_number(source, "swa_num_attention_heads", static_cast<double>(config.num_attention_heads));
  need_number(source, "swa_num_key_value_heads", static_cast<double>(config.num_key_value_heads));
  need_number(source, "swa_head_dim", static_cast<double>(config.head_dim));
  need_number(source, "swa_v_head_dim", static_cast<double>(config.value_dim_of(0)));
  if (!source.has("rope_parameters")) {
    need_number(source, "rope_theta", kTheta);
    need_number(source, "swa_rope_theta", kSlidingTheta);
    need_number(source, "partial_rotary_factor", kRotated);
  }
  for (const auto& [key, flags] : {std::pair("hybrid_layer_pattern", &config.layer_is_sliding),
                                   std::pair("moe_layer_freq", &config.layer_is_sparse)}) {
    MAGISTER_CHECK(!source.is_list(key) || source.flags(key) == *flags, ExitCode::kData,
                   "{}: {} is not what transformers computes without reading it (which of the two the weights have is "
                   "unknown); use another model",
                   printable(source.path()), key);
  }
}

void read_rope(const HfConfig& source, ModelConfig& config) {
  RopeConfig local;
  local.theta = kSlidingTheta;
  config.sliding_rope =
      source.rope_of("sliding_attention", config.max_position_embeddings, kSlidingTheta).value_or(local);
  const auto turning = [&](const char* layers) {
    const std::int64_t part = source.rotary_dim(config.head_dim, kRotated, layers);
    return part == 0 ? config.head_dim : part;
  };
  config.rotary_dim = turning("full_attention");
  config.sliding_rotary_dim = turning("sliding_attention");
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  std::vector<bool> slides = all_but_every(6, config.num_hidden_layers);
  slides.front() = false;
  config.layer_is_sliding = source.sliding_layers(std::move(slides));
  config.sliding_window = source.has("sliding_window_size")
                              ? source.integer("sliding_window_size", 1, INT32_MAX - 1) + 1
                              : source.integer("sliding_window", 1, INT32_MAX);
  config.attention_sinks = config.sinks_in_windows = true;
  config.full_kv_heads = config.num_key_value_heads;
  const bool any = std::ranges::find(config.layer_is_sliding, true) != config.layer_is_sliding.end();
  if (any) config.num_key_value_heads *= 2;
  const std::int64_t values = source.integer("v_head_dim", 1, 1 << 12);
  config.value_dim = values == config.head_dim ? 0 : values;
  if (!source.is_null("attention_value_scale"))
    config.value_scale = source.number_or("attention_value_scale", kValueScale, 1e-6, 1e6);
  config.qkv_bias = source.boolean_or("attention_bias", false);
  read_rope(source, config);
  read_sigmoid_router(source, config, false);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.layer_is_sparse = sparse_layers(source, 1, config.num_hidden_layers);
  check_dense_layers(source, config);
  check_published_keys(source, config);
}

}  // namespace mimo_v2

extern const Family kMiMoV2Family;
const Family kMiMoV2Family{.name = "mimo_v2_flash",
                           .model_type = "mimo_v2_flash",
                           .architecture = "MiMoV2FlashForCausalLM",
                           .read_hf = mimo_v2::read_hf,
                           .computes = mimo_v2::kComputes,
                           .hf_renames = mimo_v2::kRenames,
                           .default_rope_theta = mimo_v2::kTheta,
                           .classifier = "",
                           .hf_defaults = mimo_v2::kDefaults};

}  // namespace magister
