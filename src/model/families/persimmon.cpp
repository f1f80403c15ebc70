// Persimmon: GPT-NeoX's tensors in sequence, with layer norms over each head of q and k, and ReLU squared in the MLP.
// Source: transformers PersimmonConfig, PersimmonAttention and PersimmonMLP.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace persimmon {

constexpr const char* kComputes[] = {"partial_rotary_factor", "qk_layernorm", "relu2", "relu",
                                     "gelu by the normal distribution"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"model.norm.weight", "model.final_layernorm.weight"},
    {"model.norm.bias", "model.final_layernorm.bias"},
    {"self_attn.qkv_proj.weight", "self_attn.query_key_value.weight"},
    {"self_attn.qkv_proj.bias", "self_attn.query_key_value.bias"},
    {"self_attn.o_proj.weight", "self_attn.dense.weight"},
    {"self_attn.o_proj.bias", "self_attn.dense.bias"},
    {"self_attn.q_norm.weight", "self_attn.q_layernorm.weight"},
    {"self_attn.q_norm.bias", "self_attn.q_layernorm.bias"},
    {"self_attn.k_norm.weight", "self_attn.k_layernorm.weight"},
    {"self_attn.k_norm.bias", "self_attn.k_layernorm.bias"},
    {"mlp.up_proj.weight", "mlp.dense_h_to_4h.weight"},
    {"mlp.up_proj.bias", "mlp.dense_h_to_4h.bias"},
    {"mlp.down_proj.weight", "mlp.dense_4h_to_h.weight"},
    {"mlp.down_proj.bias", "mlp.dense_4h_to_h.bias"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.gated_mlp = false;
  config.fused_qkv_proj = config.fused_qkv_by_head = true;
  config.num_key_value_heads = config.num_attention_heads;
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  config.qk_norm = config.qk_layer_norm = source.boolean_or("qk_layernorm", true);
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.5);
  if (!source.has("hidden_act")) config.activation = Activation::kRelu2;
  need_even_heads(source, config);
}

}  // namespace persimmon

extern const Family kPersimmonFamily;
const Family kPersimmonFamily{.name = "persimmon",
                              .model_type = "persimmon",
                              .architecture = "PersimmonForCausalLM",
                              .read_hf = persimmon::read_hf,
                              .computes = persimmon::kComputes,
                              .hf_renames = persimmon::kRenames,
                              .classifier = ""};

}  // namespace magister
