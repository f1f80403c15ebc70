// MiniCPM3: DeepSeek-V2's latent attention with rotary halves, one MLP a layer, and Granite's multipliers: of the
// embeddings, of block outputs (scale_depth / sqrt(layers)) and of logits (dim_model_base / hidden_size).
// Source: transformers MiniCPM3Config, MiniCPM3Attention and MiniCPM3DecoderLayer.
#include <cmath>

#include "magister/core/error.h"
#include "model/families/latent_fields.h"
#include "model/families/scaled_stream.h"

namespace magister {
namespace minicpm3 {

constexpr const char* kComputes[] = {"kv_lora_rank", "yarn", "longrope", "scale_emb", "scale_depth"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"kv_lora_rank", 256}, {"q_lora_rank", 768}, {"qk_nope_head_dim", 64}, {"qk_rope_head_dim", 32}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  read_latent(source, config, config.hidden_size / config.num_attention_heads);
  config.latent->rope_pairs = false;
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  const double D = static_cast<double>(config.hidden_size), L = static_cast<double>(config.num_hidden_layers);
  const auto number = [&](const char* key, double absent, double of_null) {
    return source.is_null(key) ? of_null : source.number_or(key, absent, 1e-4, 1e6);
  };
  config.embedding_multiplier = source.number_or("scale_emb", 12.0, 1e-4, 1e4);
  config.logit_scale = number("dim_model_base", 256.0, D) / D;
  divide_stream(config, number("scale_depth", 1.4, std::sqrt(L)) / std::sqrt(L));
}

}  // namespace minicpm3

extern const Family kMiniCpm3Family;
const Family kMiniCpm3Family{.name = "minicpm3",
                             .model_type = "minicpm3",
                             .architecture = "MiniCPM3ForCausalLM",
                             .read_hf = minicpm3::read_hf,
                             .computes = minicpm3::kComputes,
                             .classifier = "MiniCPM3ForSequenceClassification",
                             .hf_defaults = minicpm3::kDefaults};

}  // namespace magister
