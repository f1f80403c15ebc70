// Source: transformers' DeepseekV3Attention, yarn_apply_mscale and DeepseekV32Config.
#include "model/families/latent_fields.h"

#include <cmath>

#include "magister/core/error.h"

namespace magister {

void read_latent(const HfConfig& source, ModelConfig& config, std::int64_t value_dim) {
  constexpr std::int64_t kMost = 1 << 16;
  LatentConfig latent;
  latent.query_rank = source.integer_or("q_lora_rank", 0, 1, kMost);
  latent.rank = source.integer("kv_lora_rank", 1, kMost);
  latent.nope_dim = source.integer("qk_nope_head_dim", 1, kMost);
  latent.rope_dim = source.integer("qk_rope_head_dim", 2, kMost);
  latent.value_dim =
      value_dim > 0 ? source.integer_or("v_head_dim", value_dim, 1, kMost) : source.integer("v_head_dim", 1, kMost);
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

void read_indexer(const HfConfig& source, ModelConfig& config, bool pairs) {
  LatentConfig& latent = *config.latent;
  IndexerConfig indexer;
  indexer.heads = source.integer("index_n_heads", 1, 1 << 12);
  indexer.head_dim = source.integer("index_head_dim", latent.rope_dim, 1 << 12);
  indexer.top_k = source.integer("index_topk", 1, INT32_MAX);
  indexer.rope_pairs = pairs;
  MAGISTER_CHECK(latent.query_rank > 0, ExitCode::kData,
                 "{}: q_lora_rank is null (the indexer's queries are products of the queries' short vector); fetch the "
                 "config again",
                 printable(source.path()));
  const char* const kOrders[] = {"rope_interleave", "indexer_rope_interleave"};
  for (const char* key : kOrders) {
    const bool expected = key == kOrders[0] || pairs;
    MAGISTER_CHECK(source.boolean_or(key, expected) == expected, ExitCode::kData,
                   "{}: {} is {} (transformers ignores it and turns the rows otherwise; programs would differ); use "
                   "another model",
                   printable(source.path()), key, !expected);
  }
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(type == "indexed_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (every layer of this family is indexed_attention); use another model",
                   printable(source.path()), printable(type));
  }
  latent.rope_pairs = true;
  latent.indexer = indexer;
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
