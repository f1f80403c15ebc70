// Reads of the fields that Gemma 1, 2 and 3 share.
#include "model/families/gemma_fields.h"

#include <cmath>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr double kMostCap = 1e6;

void set_common(ModelConfig& config) {
  config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.rounds_embedding_multiplier = true;
  config.activation = Activation::kGeluTanh;
}

// A key that is null means no cap; a missing key means the class's default.
double cap(const HfConfig& source, const char* key, double absent) {
  if (source.is_null(key)) return 0.0;
  return source.has(key) ? source.number_or(key, 0.0, 1e-3, kMostCap) : absent;
}

}  // namespace

void read_gemma_fields(const HfConfig& source, ModelConfig& config) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string name = source.text_or(key, "gelu_pytorch_tanh");
    MAGISTER_CHECK(name == "gelu_pytorch_tanh" || name == "gelu", ExitCode::kData,
                   "{}: {} is \"{}\" (Gemma's layers have gelu_pytorch_tanh, also written gelu); use another model",
                   printable(source.path()), key, printable(name));
  }
  set_common(config);
  config.norm_weights_plus_one = true;
  if (!source.has("head_dim")) config.head_dim = 256;  // the classes' default; hidden_size / heads is not used
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
}

void read_gemma_fields(const GgufConfig&, ModelConfig& config) { set_common(config); }

void read_gemma_layers(const HfConfig& source, ModelConfig& config, double attention_cap, double logit_cap,
                       std::int64_t sliding_pattern) {
  read_gemma_fields(source, config);
  MAGISTER_CHECK(source.text_or("hidden_activation", "gelu_pytorch_tanh") == "gelu_pytorch_tanh", ExitCode::kData,
                 "{}: hidden_activation is \"gelu\" (since Gemma 2 this is the exact GELU, which is not supported); "
                 "use another model",
                 printable(source.path()));
  config.norm_placement = NormPlacement::kBoth;
  config.attention_multiplier = 1.0 / std::sqrt(source.number_or("query_pre_attn_scalar", 256, 1e-3, 1e6));
  config.attn_logit_softcapping = cap(source, "attn_logit_softcapping", attention_cap);
  config.final_logit_softcapping = cap(source, "final_logit_softcapping", logit_cap);
  config.layer_is_sliding = source.sliding_layers(all_but_every(sliding_pattern, config.num_hidden_layers));
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
}

void read_gemma_layers(const GgufConfig& source, ModelConfig& config, double attention_cap, double logit_cap,
                       std::int64_t sliding_pattern, std::int64_t least_window) {
  read_gemma_fields(source, config);
  config.norm_placement = NormPlacement::kBoth;
  config.attn_logit_softcapping = source.number_or("attn_logit_softcapping", attention_cap, 0, kMostCap);
  config.final_logit_softcapping = source.number_or("final_logit_softcapping", logit_cap, 0, kMostCap);
  config.attention_multiplier = source.number_or("attention.scale", 0.0, 0.0, 1e3);
  config.layer_is_sliding = all_but_every(sliding_pattern, config.num_hidden_layers);
  config.sliding_window = source.integer_or("attention.sliding_window", 4096, least_window, INT32_MAX);
}

}  // namespace magister
