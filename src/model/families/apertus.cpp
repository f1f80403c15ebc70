// Apertus: Llama's attention with norms on each head of q and k, and an MLP without a gate whose activation, xIELU, has
// two learned numbers a layer.
// Source: transformers ApertusConfig, ApertusMLP and XIELUActivation (arXiv 2411.13010).
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

}  // namespace apertus

extern const Family kApertusFamily;
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
