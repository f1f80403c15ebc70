// OLMo 2 and 3: norms only on the output of blocks, and on q and k over all heads together. In OLMo 3, three of four
// layers have a window, and the others may have YaRN.
// Source: transformers Olmo2Config, Olmo3Config and Olmo2Attention; llama.cpp for GGUF files.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace olmo2 {

constexpr double kTheta3 = 500000.0;

void set_layers(ModelConfig& config) {
  config.norm_placement = NormPlacement::kOutput;
  config.qk_norm = config.qk_norm_of_all_heads = true;
}

void read_hf_2(const HfConfig& source, ModelConfig& config) {
  set_layers(config);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
}

void read_hf_3(const HfConfig& source, ModelConfig& config) {
  read_hf_2(source, config);
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  config.layer_is_sliding = source.sliding_layers(all_but_every(4, config.num_hidden_layers));
  RopeConfig plain;  // only layers with full attention have scaling
  plain.theta = kTheta3;
  const auto stated = source.rope_of("sliding_attention", config.max_position_embeddings, plain.theta);
  MAGISTER_CHECK(stated || config.rope.theta == kTheta3, ExitCode::kData,
                 "{}: rope_theta is {} (transformers uses it only for layers with full attention, and {} for those "
                 "with a window); write rope_parameters with full_attention and sliding_attention",
                 printable(source.path()), config.rope.theta, kTheta3);
  config.sliding_rope = stated.value_or(plain);
}

// GGUF files of OLMo 3 also have the architecture olmo2. They have a window, in three of four layers if the file does
// not say in which.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  set_layers(config);
  config.sliding_window = source.integer_or("attention.sliding_window", 0, 0, INT32_MAX);
  if (config.sliding_window == 0) return;
  config.layer_is_sliding = source.sliding_layers(4, config.num_hidden_layers);
  config.sliding_rope.emplace().theta = source.number_or("rope.freq_base_swa", config.rope.theta, 1e-3, 1e15);
}

constexpr const char* kComputes2[] = {"rope.scaling.yarn", "rope.scaling.attn_factor",
                                      "attention.sliding_window_pattern"};
constexpr const char* kComputes3[] = {"rope_parameters.full_attention", "yarn"};

}  // namespace olmo2

extern const Family kOlmo2Family, kOlmo3Family;
const Family kOlmo2Family{.name = "olmo2",
                          .model_type = "olmo2",
                          .architecture = "Olmo2ForCausalLM",
                          .gguf_architecture = "olmo2",
                          .read_hf = olmo2::read_hf_2,
                          .read_gguf = olmo2::read_gguf,
                          .computes = olmo2::kComputes2};
const Family kOlmo3Family{.name = "olmo3",
                          .model_type = "olmo3",
                          .architecture = "Olmo3ForCausalLM",
                          .read_hf = olmo2::read_hf_3,
                          .computes = olmo2::kComputes3,
                          .default_rope_theta = olmo2::kTheta3};

}  // namespace magister
