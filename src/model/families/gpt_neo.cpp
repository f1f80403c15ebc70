// GPT-Neo: GPT-2's layers with q, k and v in tensors of their own and without biases, unscaled attention scores, and a
// window in the layers that are local. Weights are stored as [out, in].
// Source: transformers GPTNeoConfig, GPTNeoSelfAttention and GPTNeoBlock.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace gpt_neo {

constexpr std::pair<const char*, const char*> kKeys[] = {
    {"num_hidden_layers", "num_layers"}, {"num_attention_heads", "num_heads"}, {"hidden_act", "activation_function"}};
constexpr const char* kComputes[] = {"gelu by the normal distribution"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"model.embed_tokens.weight", "transformer.wte.weight"},
    {"model.embed_positions.weight", "transformer.wpe.weight"},
    {"model.norm.weight", "transformer.ln_f.weight"},
    {"model.norm.bias", "transformer.ln_f.bias"},
    {"input_layernorm.weight", "ln_1.weight"},
    {"input_layernorm.bias", "ln_1.bias"},
    {"post_attention_layernorm.weight", "ln_2.weight"},
    {"post_attention_layernorm.bias", "ln_2.bias"},
    {"self_attn.q_proj.weight", "attn.attention.q_proj.weight"},
    {"self_attn.k_proj.weight", "attn.attention.k_proj.weight"},
    {"self_attn.v_proj.weight", "attn.attention.v_proj.weight"},
    {"self_attn.o_proj.weight", "attn.attention.out_proj.weight"},
    {"self_attn.o_proj.bias", "attn.attention.out_proj.bias"},
    {"mlp.up_proj.weight", "mlp.c_fc.weight"},
    {"mlp.up_proj.bias", "mlp.c_fc.bias"},
    {"mlp.down_proj.weight", "mlp.c_proj.weight"},
    {"mlp.down_proj.bias", "mlp.c_proj.bias"}};
constexpr const char* kIgnored[] = {"attn.attention.bias", "attn.attention.masked_bias"};  // the causal mask

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.o_bias = config.mlp_bias = config.learned_positions = true;
  config.rms_norm_eps = source.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1.0);
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
  config.rope = {};
  config.gated_mlp = false;
  config.attention_multiplier = 1.0;
  config.num_key_value_heads = config.num_attention_heads;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  if (!source.has("hidden_act")) config.activation = Activation::kGeluTanh;
  config.sliding_window = source.integer_or("window_size", 256, 1, INT32_MAX);
  for (const std::string& type : source.repeated_texts("attention_types")) {
    MAGISTER_CHECK(type == "global" || type == "local", ExitCode::kData,
                   "{}: attention_types has \"{}\" (known: global, local); use another model", printable(source.path()),
                   printable(type));
    config.layer_is_sliding.push_back(type == "local");
  }
  need_even_heads(source, config);
}

}  // namespace gpt_neo

extern const Family kGptNeoFamily;
const Family kGptNeoFamily{.name = "gpt_neo",
                           .model_type = "gpt_neo",
                           .architecture = "GPTNeoForCausalLM",
                           .read_hf = gpt_neo::read_hf,
                           .computes = gpt_neo::kComputes,
                           .hf_renames = gpt_neo::kRenames,
                           .hf_keys = gpt_neo::kKeys,
                           .default_mlp_widths = 4,
                           .hf_layers = "transformer.h.",
                           .hf_optional_prefix = "transformer.",
                           .hf_ignored = gpt_neo::kIgnored};

}  // namespace magister
