// GPT-2: learned position vectors instead of a rotary embedding, an MLP without a gate, layer norms with biases, biases
// everywhere. Weights are stored as [in, out], with q, k and v in one tensor; the head is tied to the embeddings. The
// first published files lack the prefix "transformer.".
// GPTBigCode (StarCoder 1) stores them as [out, in], and all its heads may share one KV head.
// Source: transformers GPT2Config, GPT2Block, Conv1D, GPTBigCodeConfig and GPTBigCodeAttention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace gpt2 {

constexpr std::pair<const char*, const char*> kKeys[] = {{"hidden_size", "n_embd"},
                                                         {"num_hidden_layers", "n_layer"},
                                                         {"num_attention_heads", "n_head"},
                                                         {"intermediate_size", "n_inner"},
                                                         {"max_position_embeddings", "n_positions"},
                                                         {"hidden_act", "activation_function"}};
constexpr const char* kComputes[] = {"gelu by the normal distribution", "attention.layer_norm_epsilon"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"model.embed_tokens.weight", "transformer.wte.weight"},
                                                            {"model.embed_positions.weight", "transformer.wpe.weight"},
                                                            {"model.norm.weight", "transformer.ln_f.weight"},
                                                            {"model.norm.bias", "transformer.ln_f.bias"},
                                                            {"input_layernorm.weight", "ln_1.weight"},
                                                            {"input_layernorm.bias", "ln_1.bias"},
                                                            {"post_attention_layernorm.weight", "ln_2.weight"},
                                                            {"post_attention_layernorm.bias", "ln_2.bias"},
                                                            {"self_attn.qkv_proj.weight", "attn.c_attn.weight"},
                                                            {"self_attn.qkv_proj.bias", "attn.c_attn.bias"},
                                                            {"self_attn.o_proj.weight", "attn.c_proj.weight"},
                                                            {"self_attn.o_proj.bias", "attn.c_proj.bias"},
                                                            {"mlp.up_proj.weight", "mlp.c_fc.weight"},
                                                            {"mlp.up_proj.bias", "mlp.c_fc.bias"},
                                                            {"mlp.down_proj.weight", "mlp.c_proj.weight"},
                                                            {"mlp.down_proj.bias", "mlp.c_proj.bias"}};
constexpr const char* kIgnored[] = {"attn.bias", "attn.masked_bias"};  // the causal mask

// Fields that neither kind of file states.
void set_blocks(ModelConfig& config, const std::string& path) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.learned_positions = config.narrow_residuals = true;
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
  config.rope = {};
  config.rotary_dim = 0;
  config.gated_mlp = false;
  config.fused_qkv_proj = true;
  const std::int64_t H = config.num_attention_heads;
  config.num_key_value_heads = H;
  MAGISTER_CHECK(config.hidden_size % H == 0, ExitCode::kData,
                 "{}: n_embd is {} and n_head {} (heads are equal parts of it); fetch the config again",
                 printable(path), config.hidden_size, H);
  config.head_dim = config.hidden_size / H;
}

void read_hf_without_options(const HfConfig& source, ModelConfig& config) {
  set_blocks(config, source.path());
  config.rms_norm_eps = source.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1.0);
  if (!source.has("hidden_act")) config.activation = Activation::kGeluTanh;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
}

void read_hf_bigcode(const HfConfig& source, ModelConfig& config) {
  need_flag(source, "scale_attn_weights", true, true);
  need_flag(source, "add_cross_attention", false, false);
  read_hf_without_options(source, config);
  config.fused_qkv_by_head = !source.boolean_or("multi_query", true);
  if (!config.fused_qkv_by_head) config.num_key_value_heads = 1;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  const auto refuse_unless = [&](const char* key, bool absent, bool computed) {
    MAGISTER_CHECK(source.boolean_or(key, absent) == computed, ExitCode::kData,
                   "{}: {} is {} (attention of this kind is not supported, and results would be wrong); use another "
                   "model",
                   printable(source.path()), key, !computed);
  };
  refuse_unless("scale_attn_weights", true, true);
  refuse_unless("scale_attn_by_inverse_layer_idx", false, false);
  refuse_unless("add_cross_attention", false, false);
  read_hf_without_options(source, config);
}

// GGUF files store weights as [out, in], and GELU is the tanh form, as in the family's configs. Source: llama.cpp's
// converter of GPT2LMHeadModel.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  set_blocks(config, source.path());
  config.activation = Activation::kGeluTanh;
}

}  // namespace gpt2

extern const Family kGpt2Family, kGptBigCodeFamily;
const Family kGptBigCodeFamily{.name = "gpt_bigcode",
                               .model_type = "gpt_bigcode",
                               .architecture = "GPTBigCodeForCausalLM",
                               .read_hf = gpt2::read_hf_bigcode,
                               .computes = gpt2::kComputes,
                               .hf_renames = gpt2::kRenames,
                               .hf_keys = gpt2::kKeys,
                               .default_mlp_widths = 4,
                               .hf_layers = "transformer.h.",
                               .hf_ignored = gpt2::kIgnored};
const Family kGpt2Family{.name = "gpt2",
                         .model_type = "gpt2",
                         .architecture = "GPT2LMHeadModel",
                         .gguf_architecture = "gpt2",
                         .read_hf = gpt2::read_hf,
                         .read_gguf = gpt2::read_gguf,
                         .computes = gpt2::kComputes,
                         .hf_renames = gpt2::kRenames,
                         .hf_keys = gpt2::kKeys,
                         .default_mlp_widths = 4,
                         .hf_layers = "transformer.h.",
                         .hf_optional_prefix = "transformer.",
                         .hf_ignored = gpt2::kIgnored,
                         .hf_transposed_products = true};

}  // namespace magister
