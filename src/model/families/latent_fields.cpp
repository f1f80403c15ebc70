// Source: transformers' DeepseekV3Attention and yarn_apply_mscale.
#include "model/families/latent_fields.h"

#include <cmath>

#include "magister/core/error.h"

namespace magister {

void read_latent(const HfConfig& source, ModelConfig& config) {
  constexpr std::int64_t kMost = 1 << 16;
  LatentConfig latent;
  latent.query_rank = source.integer_or("q_lora_rank", 0, 1, kMost);
  latent.rank = source.integer("kv_lora_rank", 1, kMost);
  latent.nope_dim = source.integer("qk_nope_head_dim", 1, kMost);
  latent.rope_dim = source.integer("qk_rope_head_dim", 2, kMost);
  latent.value_dim = source.integer("v_head_dim", 1, kMost);
  latent.rope_pairs = source.boolean_or("rope_interleave", true);
  MAGISTER_CHECK(
      config.num_key_value_heads == config.num_attention_heads, ExitCode::kData,
      "{}: num_key_value_heads is {} (with latent attention each of the {} heads has keys of its own); fetch "
      "the config again",
      printable(source.path()), config.num_key_value_heads, config.num_attention_heads);
  MAGISTER_CHECK(
      source.number_or("partial_rotary_factor", 1.0, 0.0, 1.0) == 1.0, ExitCode::kData,
      "{}: partial_rotary_factor is not 1 (with latent attention qk_rope_head_dim says what is rotated); use "
      "another model",
      printable(source.path()));
  config.head_dim = latent.nope_dim + latent.rope_dim;
  config.rotary_dim = latent.rope_dim;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  const double of_scores = source.rope_member("mscale_all_dim").value_or(0.0);
  double mscale = 1.0;
  if (config.rope.kind != RopeConfig::Kind::kDefault && of_scores != 0.0 && config.rope.factor > 1.0)
    mscale = 0.1 * of_scores * std::log(config.rope.factor) + 1.0;
  config.attention_multiplier = mscale * mscale / std::sqrt(static_cast<double>(config.head_dim));
  config.latent = latent;
}

void require_text(const HfConfig& source, const char* key, const char* value) {
  const std::string found = source.text_or(key, value);
  MAGISTER_CHECK(found == value, ExitCode::kData,
                 "{}: {} is \"{}\" (only \"{}\" is computed, and results would be wrong); use another model",
                 printable(source.path()), key, printable(found), value);
}

void require_every_layer(const HfConfig& source) {
  const std::int64_t step = source.integer_or("moe_layer_freq", 1, 1, 1 << 12);
  MAGISTER_CHECK(
      step == 1, ExitCode::kData,
      "{}: moe_layer_freq is {} (only experts in every layer after the dense ones are computed); use another "
      "model",
      printable(source.path()), step);
}

}  // namespace magister
