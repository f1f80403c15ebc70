// Cohere's Command R (cohere), and Command R7B and Command A (cohere2). Attention and MLP read the same layer norm of
// the residual stream, and their outputs are added to it together. Logits are scaled, the head is tied to the
// embeddings, and rotary pairs are interleaved. In Cohere 2, three of four layers have a window and a rotary embedding,
// and the fourth has neither.
// Source: transformers CohereConfig, Cohere2Config and their decoder layers; llama.cpp for GGUF files.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace cohere {

constexpr const char* kComputes[] = {"logit_scale", "attention.layer_norm_epsilon"};
constexpr const char* kComputes2[] = {"logit_scale", "attention.layer_norm_epsilon",
                                      "attention.sliding_window_pattern"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.parallel_residual = true;
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  config.logit_scale = source.number_or("logit_scale", 0.0625, 1e-6, 1e6);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  need_even_heads(source, config);
}

void read_hf_2(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  MAGISTER_CHECK(
      config.sliding_window > 0, ExitCode::kData,
      "{}: sliding_window is null (the layers with a window are those with a rotary embedding); fetch the config again",
      printable(source.path()));
  const std::int64_t pattern = source.integer_or("sliding_window_pattern", 4, 1, 1 << 12);
  config.layer_is_sliding = source.sliding_layers(all_but_every(pattern, config.num_hidden_layers));
  config.layer_has_rope = config.layer_is_sliding;
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.parallel_residual = true;
  config.logit_scale = source.number("logit_scale", 1e-6, 1e6);
}

void read_gguf_2(const GgufConfig& source, ModelConfig& config) {
  read_gguf(source, config);
  config.sliding_window = source.integer("attention.sliding_window", 1, INT32_MAX);
  config.layer_is_sliding = source.sliding_layers(4, config.num_hidden_layers);
  config.layer_has_rope = config.layer_is_sliding;
  MAGISTER_CHECK(!source.has("rope.freq_base_swa"), ExitCode::kData,
                 "{}: {}.rope.freq_base_swa is set (this family has one rotary embedding); fetch the file again",
                 printable(source.path()), source.architecture());
}

}  // namespace cohere

extern const Family kCohereFamily, kCohere2Family;
const Family kCohereFamily{.name = "cohere",
                           .model_type = "cohere",
                           .architecture = "CohereForCausalLM",
                           .gguf_architecture = "command-r",
                           .gguf_interleaved_rope_rows = true,
                           .read_hf = cohere::read_hf,
                           .read_gguf = cohere::read_gguf,
                           .computes = cohere::kComputes,
                           .hf_interleaved_rope_rows = true,
                           .default_rope_theta = 500000.0,
                           .classifier = ""};
const Family kCohere2Family{.name = "cohere2",
                            .model_type = "cohere2",
                            .architecture = "Cohere2ForCausalLM",
                            .gguf_architecture = "cohere2",
                            .gguf_interleaved_rope_rows = true,
                            .read_hf = cohere::read_hf_2,
                            .read_gguf = cohere::read_gguf_2,
                            .computes = cohere::kComputes2,
                            .hf_interleaved_rope_rows = true,
                            .classifier = ""};

}  // namespace magister
