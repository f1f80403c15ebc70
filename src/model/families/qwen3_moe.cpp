// Qwen3-MoE: Qwen3's attention, with experts in every layer, or in every decoder_sparse_step-th layer that
// mlp_only_layers does not list. The other layers have a plain MLP.
// Source: transformers Qwen3MoeConfig and Qwen3MoeDecoderLayer.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace qwen3_moe {

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 4;
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  if (source.boolean_or("use_sliding_window", false)) {  // all layers have the window, unlike in Qwen3
    const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
    config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  }
  read_experts(source, config, "moe_intermediate_size", 128, 8);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
  config.layer_is_sparse = stepped_sparse_layers(source, config.num_hidden_layers);
}

// llama.cpp computes experts in every layer, and divides their probabilities by the sum.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.qk_norm = true;
  read_experts(source, config, "expert_feed_forward_length");
  config.norm_topk_prob = true;
}

// Mellum 2: a window in the layers that layer_types names, with a rotary embedding of their own.
// Source: transformers MellumConfig and MellumDecoderLayer.
constexpr const char* kMellumComputes[] = {"num_experts", "num_local_experts", "rope_parameters.full_attention",
                                           "yarn"};

void read_mellum(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 4;
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_experts(source, config, "moe_intermediate_size", 64, 8);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.layer_is_sparse = sparse_layers(source, 0, config.num_hidden_layers);
  MAGISTER_CHECK(source.has("rope_parameters"), ExitCode::kData,
                 "{}: rope_parameters is missing (the rotary embeddings are unknown); fetch the config again",
                 printable(source.path()));
  config.layer_is_sliding = source.sliding_layers({});
  if (std::ranges::find(config.layer_is_sliding, true) == config.layer_is_sliding.end()) {
    config.layer_is_sliding.clear();
    return;
  }
  config.sliding_window =
      source.integer_or("sliding_window", source.is_null("sliding_window") ? 0 : 1024, 1, INT32_MAX);
  config.sliding_rope = source.rope_of("sliding_attention", config.max_position_embeddings, 10000.0);
  MAGISTER_CHECK(config.sliding_window > 0 && config.sliding_rope, ExitCode::kData,
                 "{}: layer_types has sliding_attention, but sliding_window or "
                 "rope_parameters.sliding_attention is missing (the layers cannot be computed); fetch the config again",
                 printable(source.path()));
}

}  // namespace qwen3_moe

extern const Family kQwen3MoeFamily, kMellumFamily;
const Family kMellumFamily{.name = "mellum",
                           .model_type = "mellum",
                           .architecture = "MellumForCausalLM",
                           .read_hf = qwen3_moe::read_mellum,
                           .computes = qwen3_moe::kMellumComputes,
                           .default_rope_theta = 500000.0,
                           .classifier = ""};
const Family kQwen3MoeFamily{.name = "qwen3_moe",
                             .model_type = "qwen3_moe",
                             .architecture = "Qwen3MoeForCausalLM",
                             .gguf_architecture = "qwen3moe",
                             .read_hf = qwen3_moe::read_hf,
                             .read_gguf = qwen3_moe::read_gguf,
                             .computes = kExpertKeys};

}  // namespace magister
