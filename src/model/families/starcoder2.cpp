// StarCoder 2: Mistral's attention with biases, layer norms with biases, and an MLP without a gate.
// Source: transformers Starcoder2Config, Starcoder2Attention and Starcoder2MLP (arXiv 2402.19173).
#include "model/families/family.h"

namespace magister {
namespace starcoder2 {

constexpr const char* kComputes[] = {"yarn"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"mlp.up_proj.weight", "mlp.c_fc.weight"},
                                                            {"mlp.up_proj.bias", "mlp.c_fc.bias"},
                                                            {"mlp.down_proj.weight", "mlp.c_proj.weight"},
                                                            {"mlp.down_proj.bias", "mlp.c_proj.bias"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 2;
  if (!source.has("hidden_act")) config.activation = Activation::kGeluTanh;
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
  config.gated_mlp = false;
  config.rms_norm_eps = source.number_or("norm_epsilon", 1e-5, 1e-12, 1.0);
  config.qkv_bias = config.o_bias = config.mlp_bias = source.boolean_or("use_bias", true);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
}

}  // namespace starcoder2

extern const Family kStarcoder2Family;
const Family kStarcoder2Family{.name = "starcoder2",
                               .model_type = "starcoder2",
                               .architecture = "Starcoder2ForCausalLM",
                               .read_hf = starcoder2::read_hf,
                               .computes = starcoder2::kComputes,
                               .hf_renames = starcoder2::kRenames};

}  // namespace magister
