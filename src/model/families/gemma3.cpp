// Gemma 3, text: Gemma 2's layers without softcap on attention scores, with norms on q and k, and with two rotary
// embeddings: one for the layers with a window (five of six), and one for the layers with full attention.
// Source: transformers Gemma3TextConfig (arXiv 2503.19786); llama.cpp for GGUF files.
#include <cmath>

#include "magister/core/error.h"
#include "model/families/gemma_fields.h"

namespace magister {
namespace gemma3 {

// attn_logit_softcapping is missing here: transformers' class reads it but does not compute it.
constexpr const char* kComputes[] = {"gelu",
                                     "query_pre_attn_scalar",
                                     "final_logit_softcapping",
                                     "attention.scale",
                                     "rope_local_base_freq",
                                     "rope_parameters.full_attention"};
constexpr double kLocalTheta = 10000.0;
// The published models of images and texts (4B to 27B) leave these out.
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"vocab_size", 262208},
                                                              {"hidden_size", 2304},
                                                              {"intermediate_size", 9216},
                                                              {"num_hidden_layers", 26},
                                                              {"num_attention_heads", 8},
                                                              {"num_key_value_heads", 4},
                                                              {"max_position_embeddings", 131072}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_gemma_layers(source, config, 0, 0, source.integer_or("sliding_window_pattern", 6, 1, 1 << 12));
  config.qk_norm = true;
  RopeConfig local;
  local.theta = source.number_or("rope_local_base_freq", kLocalTheta, 1e-3, 1e15);
  config.sliding_rope =
      source.rope_of("sliding_attention", config.max_position_embeddings, local.theta).value_or(local);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  read_gemma_layers(source, config, 0, 0, 6, 0);
  config.qk_norm = true;
  // llama.cpp's converter omits the window where no layer has one. All layers then use the one rotary base.
  if (source.integer_or("attention.sliding_window", 0, 0, INT32_MAX) == 0) {
    config.sliding_window = 0;
    config.layer_is_sliding.clear();
  } else {
    config.sliding_rope.emplace().theta = source.number_or("rope.freq_base_swa", kLocalTheta, 1e-3, 1e15);
  }
  // As in Gemma 2; the 27B model is the one with 62 layers.
  if (config.attention_multiplier == 0 && config.num_hidden_layers == 62) {
    const std::int64_t width = config.hidden_size / config.num_attention_heads;
    config.attention_multiplier = 1.0 / std::sqrt(static_cast<double>(width));
  }
}

}  // namespace gemma3

extern const Family kGemma3Family;
const Family kGemma3Family{.name = "gemma3",
                           .model_type = "gemma3_text",
                           .architecture = "Gemma3ForCausalLM",
                           .gguf_architecture = "gemma3",
                           .read_hf = gemma3::read_hf,
                           .read_gguf = gemma3::read_gguf,
                           .computes = gemma3::kComputes,
                           .default_rope_theta = 1e6,
                           .classifier = "Gemma3TextForSequenceClassification",
                           .hf_defaults = gemma3::kDefaults};

}  // namespace magister
