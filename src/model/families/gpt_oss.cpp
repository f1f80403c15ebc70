// gpt-oss: Mixtral's layers with attention sinks, biases on every product, a window in every other layer, beginning
// with the first, YaRN without rounding to whole dimensions, and experts with a clamped gate and (up + 1).
// Source: transformers GptOssConfig, GptOssAttention, GptOssTopKRouter and GptOssExperts (arXiv 2508.10925); llama.cpp
// for GGUF files.
#include <cmath>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace gpt_oss {

constexpr const char* kComputes[] = {"num_experts", "num_local_experts", "expert_count",
                                     "yarn",        "rope.scaling.yarn", "attention.sliding_window_pattern"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"mlp.gate.weight", "mlp.router.weight"},
                                                            {"mlp.gate.bias", "mlp.router.bias"}};
// This norm comes after attention and before the experts, hence its name in GGUF files.
constexpr std::pair<const char*, const char*> kGgufRenames[] = {{"ffn_norm.weight", "post_attention_norm.weight"}};
constexpr double kAlpha = 1.702, kLimit = 7.0;  // for a config without these keys; GGUF files never have them

void set_layers(ModelConfig& config) {
  config.attention_sinks = config.expert_bias = config.norm_topk_prob = true;
  config.swiglu_alpha = kAlpha;
  config.swiglu_limit = kLimit;
}

// The default of transformers for a config without a rotary embedding.
void set_absent_rope(RopeConfig& rope, std::int64_t original) {
  rope.kind = RopeConfig::Kind::kYarn;
  rope.factor = 32.0;
  rope.original_max_position_embeddings = original;
  rope.truncates = false;
  rope.attention_factor = 0.1 * std::log(rope.factor) + 1.0;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  set_layers(config);
  const auto absent = [&](const char* key) { return !source.has(key) && !source.is_null(key); };
  if (absent("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  if (absent("num_key_value_heads")) config.num_key_value_heads = 8;
  if (absent("head_dim")) config.head_dim = 64;
  // An empty rope_scaling counts as absent, an empty rope_parameters as unscaled.
  if (!source.has("rope_parameters") && (!source.has("rope_scaling") || source.is_empty("rope_scaling")))
    set_absent_rope(config.rope, source.integer_or("original_max_position_embeddings", 4096, 1, INT32_MAX));
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", true);
  source.refuse_two("num_experts_per_tok", "experts_per_token");  // published configs have both
  read_experts(source, config, "intermediate_size", 128, 4);
  config.fused_experts = true;
  config.swiglu_alpha = source.number_or("swiglu_alpha", kAlpha, 1e-3, 1e3);
  config.swiglu_limit = source.number_or("swiglu_limit", kLimit, 1e-3, 1e6);
  config.layer_is_sliding = source.sliding_layers(all_but_every(2, config.num_hidden_layers));
  MAGISTER_CHECK(!source.is_null("sliding_window"), ExitCode::kData,
                 "{}: sliding_window is null (the size of the window is unknown); fetch the config again",
                 printable(source.path()));
  config.sliding_window = source.integer_or("sliding_window", 128, 1, INT32_MAX);
}

// llama.cpp rounds YaRN's range to whole dimensions in every model.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  set_layers(config);
  read_experts(source, config, "expert_feed_forward_length");
  config.layer_is_sliding = source.sliding_layers(2, config.num_hidden_layers);
  config.sliding_window = source.integer("attention.sliding_window", 1, INT32_MAX);
}

}  // namespace gpt_oss

extern const Family kGptOssFamily;
const Family kGptOssFamily{.name = "gpt_oss",
                           .model_type = "gpt_oss",
                           .architecture = "GptOssForCausalLM",
                           .gguf_architecture = "gpt-oss",
                           .read_hf = gpt_oss::read_hf,
                           .read_gguf = gpt_oss::read_gguf,
                           .computes = gpt_oss::kComputes,
                           .hf_renames = gpt_oss::kRenames,
                           .default_rope_theta = 150000.0,
                           .gguf_renames = gpt_oss::kGgufRenames};

}  // namespace magister
