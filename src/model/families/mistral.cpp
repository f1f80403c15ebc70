// Mistral 7B and related models: Llama's layers with a sliding window in all of them or in none. Without the key the
// window is 4096, and null means no window, as in transformers. In Ministral (8B, 2410) layer_types says which layers
// have the window. In Ministral 3 queries grow with the logarithm of their position, beyond the original positions.
// CWM's layers are those of Ministral, with full attention in every fourth layer from the first on.
// Source: transformers MistralConfig, MinistralConfig, Ministral3Config and Ministral3Attention, CwmConfig.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace mistral {

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  const char* kind = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(
        type == kind, ExitCode::kData,
        "{}: layer_types has \"{}\" with sliding_window {} (Mistral's layers are all alike: {}); use another model",
        printable(source.path()), printable(type), config.sliding_window, kind);
  }
}

constexpr std::pair<const char*, std::int64_t> kTextDefaults[] = {
    {"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 14336},
    {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"max_position_embeddings", 131072}};

constexpr const char* kYarn[] = {"yarn"};
constexpr const char* kComputes3[] = {"yarn", "rope_parameters.llama_4_scaling_beta",
                                      "rope_parameters.max_position_embeddings"};

void read_ministral(const HfConfig& source, ModelConfig& config) {
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  config.layer_is_sliding = source.sliding_layers({});
  const bool any = std::ranges::find(config.layer_is_sliding, true) != config.layer_is_sliding.end();
  MAGISTER_CHECK(!any || config.sliding_window > 0, ExitCode::kData,
                 "{}: layer_types has sliding_attention, but sliding_window is null (the layers cannot be computed); "
                 "fetch the config again",
                 printable(source.path()));
  if (!any && !config.layer_is_sliding.empty()) {
    config.sliding_window = 0;
    config.layer_is_sliding.clear();
  }
}

void read_ministral_3(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
  MAGISTER_CHECK(source.has("rope_parameters") || source.has("rope_scaling"), ExitCode::kData,
                 "{}: rope_parameters is missing (the rotary embedding and the factor of queries are unknown); fetch "
                 "the config again",
                 printable(source.path()));
  const char* kind = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(type == kind, ExitCode::kData,
                   "{}: layer_types has \"{}\" with sliding_window {} (Ministral 3's layers are all alike: {}); use "
                   "another model",
                   printable(source.path()), printable(type), config.sliding_window, kind);
  }
  const auto beta = source.rope_member("llama_4_scaling_beta"),
             positions = source.rope_member("original_max_position_embeddings");
  MAGISTER_CHECK(beta && positions, ExitCode::kData,
                 "{}: rope_parameters has no llama_4_scaling_beta or no original_max_position_embeddings (the factor "
                 "of queries is unknown); fetch the config again",
                 printable(source.path()));
  config.query_scale_beta = *beta;
  config.query_scale_positions = static_cast<std::int64_t>(*positions);
}

void read_cwm(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  MAGISTER_CHECK(source.has("rope_parameters") || source.has("rope_scaling"), ExitCode::kData,
                 "{}: rope_parameters is missing (the rotary embedding is unknown); fetch the config again",
                 printable(source.path()));
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 8192;
  config.sliding_window = source.integer_or("sliding_window", absent, 0, INT32_MAX);
  std::vector<bool> layers(static_cast<std::size_t>(config.num_hidden_layers));
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = i % 4 != 0;
  config.layer_is_sliding = source.sliding_layers(std::move(layers));
  MAGISTER_CHECK(config.sliding_window > 0, ExitCode::kData,
                 "{}: sliding_window is {} (the layers of this family need a window); fetch the config again",
                 printable(source.path()), config.sliding_window);
}

}  // namespace mistral

extern const Family kMistralFamily, kMinistralFamily, kMinistral3Family, kCwmFamily;
const Family kMistralFamily{.name = "mistral",
                            .model_type = "mistral",
                            .architecture = "MistralForCausalLM",
                            .read_hf = mistral::read_hf,
                            .hf_text_defaults = mistral::kTextDefaults};
const Family kMinistralFamily{.name = "ministral",
                              .model_type = "ministral",
                              .architecture = "MinistralForCausalLM",
                              .read_hf = mistral::read_ministral,
                              .computes = mistral::kYarn};
const Family kMinistral3Family{.name = "ministral3",
                               .model_type = "ministral3",
                               .architecture = "Ministral3ForCausalLM",
                               .read_hf = mistral::read_ministral_3,
                               .computes = mistral::kComputes3};
const Family kCwmFamily{.name = "cwm",
                        .model_type = "cwm",
                        .architecture = "CwmForCausalLM",
                        .read_hf = mistral::read_cwm,
                        .default_rope_theta = 1e6,
                        .classifier = ""};

}  // namespace magister
