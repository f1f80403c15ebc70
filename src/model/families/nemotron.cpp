// Nemotron (3 and 4, Minitron), Arcee's AFM and Jais 2: an MLP without a gate, with the square of ReLU. Nemotron has
// layer norms whose weights mean 1 + w, and rotates a part of each head; Jais 2 has plain layer norms, and Arcee
// Llama's RMS norms.
// Source: transformers NemotronConfig, NemotronLayerNorm1P, ArceeConfig, Jais2Config.
#include "model/families/family.h"

namespace magister {
namespace nemotron {

constexpr const char* kComputes[] = {"relu2", "partial_rotary_factor"};
constexpr const char* kRelu2[] = {"relu2", "yarn"};

void set_mlp(const HfConfig& source, ModelConfig& config, bool has_biases) {
  config.gated_mlp = false;
  if (!source.has("hidden_act")) config.activation = Activation::kRelu2;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", has_biases);
  config.mlp_bias = source.boolean_or("mlp_bias", has_biases);
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  set_mlp(source, config, false);
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.norm_weights_plus_one = true;
  config.rms_norm_eps = source.number_or("norm_eps", 1e-5, 1e-12, 1.0);
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.5);
}

void read_arcee(const HfConfig& source, ModelConfig& config) {
  set_mlp(source, config, false);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
}

void read_jais(const HfConfig& source, ModelConfig& config) {
  set_mlp(source, config, true);
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
}

}  // namespace nemotron

extern const Family kNemotronFamily, kArceeFamily, kJais2Family;
const Family kNemotronFamily{.name = "nemotron",
                             .model_type = "nemotron",
                             .architecture = "NemotronForCausalLM",
                             .read_hf = nemotron::read_hf,
                             .computes = nemotron::kComputes};
const Family kArceeFamily{.name = "arcee",
                          .model_type = "arcee",
                          .architecture = "ArceeForCausalLM",
                          .read_hf = nemotron::read_arcee,
                          .computes = nemotron::kRelu2};
const Family kJais2Family{.name = "jais2",
                          .model_type = "jais2",
                          .architecture = "Jais2ForCausalLM",
                          .read_hf = nemotron::read_jais,
                          .computes = nemotron::kRelu2,
                          .classifier = ""};

}  // namespace magister
