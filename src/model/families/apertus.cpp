// Apertus: Llama's attention with norms on each head of q and k, and an MLP without a gate whose activation, xIELU, has
// two learned numbers a layer.
// Apertus 1.5 has ids of images and sounds behind those of texts, and may have no outputs for them.
// Source: transformers ApertusConfig, ApertusMLP, XIELUActivation (arXiv 2411.13010) and Apertus1p5TextConfig.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace apertus {

constexpr std::pair<const char*, const char*> kRenames[] = {
    {"input_layernorm.weight", "attention_layernorm.weight"},
    {"post_attention_layernorm.weight", "feedforward_layernorm.weight"}};
constexpr const char* kIgnored[] = {"mlp.act_fn.beta", "mlp.act_fn.eps"};  // beta is checked when weights are read
constexpr const char* kComputes[] = {"xielu"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  const std::string activation = source.text_or("hidden_act", "xielu");
  MAGISTER_CHECK(activation == "xielu", ExitCode::kData,
                 "{}: hidden_act is \"{}\" (of this family only xielu is supported); use another model",
                 printable(source.path()), printable(activation));
  MAGISTER_CHECK(source.has("rope_parameters") || source.has("rope_scaling"), ExitCode::kData,
                 "{}: rope_parameters is missing (the rotary embedding is unknown); fetch the config again",
                 printable(source.path()));
  config.qk_norm = true;
  config.gated_mlp = false;
  config.xielu = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
}

void read_text_of_1p5(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  const std::int64_t outputs = source.integer_or("output_vocab_size", config.vocab_size, 1, config.vocab_size);
  if (outputs == config.vocab_size) return;
  MAGISTER_CHECK(
      !config.tie_word_embeddings, ExitCode::kData,
      "{}: output_vocab_size is {} and tie_word_embeddings true (a head of {} rows cannot be the table of {} "
      "embeddings); fetch the config again",
      printable(source.path()), outputs, outputs, config.vocab_size);
  config.embedding_rows = config.vocab_size;
  config.vocab_size = config.first_other_id = outputs;
}

}  // namespace apertus

extern const Family kApertusFamily, kApertus1p5Family;
const Family kApertus1p5Family{.name = "apertus1p5",
                               .model_type = "apertus1p5_text",
                               .architecture = "Apertus1p5TextForCausalLM",
                               .read_hf = apertus::read_text_of_1p5,
                               .computes = apertus::kComputes,
                               .hf_renames = apertus::kRenames,
                               .default_rope_theta = 12e6,
                               .classifier = "",
                               .hf_ignored = apertus::kIgnored};
const Family kApertusFamily{.name = "apertus",
                            .model_type = "apertus",
                            .architecture = "ApertusForCausalLM",
                            .read_hf = apertus::read_hf,
                            .computes = apertus::kComputes,
                            .hf_renames = apertus::kRenames,
                            .default_rope_theta = 12e6,
                            .classifier = "",
                            .hf_ignored = apertus::kIgnored};

}  // namespace magister
