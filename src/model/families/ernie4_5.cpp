// ERNIE 4.5 (dense) and Helium: Llama's layers with rotary pairs of neighbours.
// Source: transformers Ernie4_5Config, Ernie4_5Attention, HeliumConfig and HeliumAttention.
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

}  // namespace ernie4_5

extern const Family kErnie45Family, kHeliumFamily;
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
