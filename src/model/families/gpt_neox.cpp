// GPT-NeoX and Pythia: attention and an MLP without a gate, in parallel or in sequence, each with its own layer norm;
// biases everywhere; one tensor holds q, k and v of each head in turn; only a part of each head is rotated.
// Source: transformers GPTNeoXConfig, GPTNeoXLayer and GPTNeoXAttention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace gpt_neox {

constexpr const char* kComputes[] = {"partial_rotary_factor",        "rotary_pct",
                                     "use_parallel_residual",        "gelu by the normal distribution",
                                     "attention.layer_norm_epsilon", "rope.dimension_count"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"model.embed_tokens.weight", "gpt_neox.embed_in.weight"},
    {"model.norm.weight", "gpt_neox.final_layer_norm.weight"},
    {"model.norm.bias", "gpt_neox.final_layer_norm.bias"},
    {"lm_head.weight", "embed_out.weight"},
    {"self_attn.qkv_proj.weight", "attention.query_key_value.weight"},
    {"self_attn.qkv_proj.bias", "attention.query_key_value.bias"},
    {"self_attn.o_proj.weight", "attention.dense.weight"},
    {"self_attn.o_proj.bias", "attention.dense.bias"},
    {"mlp.up_proj.weight", "mlp.dense_h_to_4h.weight"},
    {"mlp.up_proj.bias", "mlp.dense_h_to_4h.bias"},
    {"mlp.down_proj.weight", "mlp.dense_4h_to_h.weight"},
    {"mlp.down_proj.bias", "mlp.dense_4h_to_h.bias"}};
constexpr const char* kIgnored[] = {"attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"};

// Returns the value in the rotary embedding's object, else the family's own key, else its default. transformers ignores
// the common key at the top level in this family, so a common key that differs is refused.
double rope_number(const HfConfig& source, const char* common, const char* own, double absent, double most) {
  const double value = source.rope_member(common).value_or(source.number_or(own, absent, 0.0, most));
  const double common_value = source.number_or(common, value, 0.0, most);
  MAGISTER_CHECK(common_value == value, ExitCode::kData,
                 "{}: {} is {}, but {} by rope_parameters, {} or the family's default (which of the two the model was "
                 "trained with is unknown); remove the wrong one",
                 printable(source.path()), common, common_value, value, own);
  return value;
}

void set_blocks(ModelConfig& config, bool parallel) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.mlp_bias = true;
  config.parallel_residual = config.parallel_norms = parallel;
  config.gated_mlp = false;
  config.fused_qkv_proj = true;
  // The class has no grouped heads; the config's value is ignored.
  config.num_key_value_heads = config.num_attention_heads;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  set_blocks(config, source.boolean_or("use_parallel_residual", true));
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  if (!source.has("hidden_act")) config.activation = Activation::kGelu;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", true);
  config.fused_qkv_by_head = true;
  need_even_heads(source, config);
  config.rotary_dim =
      source.rotary_dim(config.head_dim, rope_number(source, "partial_rotary_factor", "rotary_pct", 0.25, 1.0));
  config.rope.theta = rope_number(source, "rope_theta", "rotary_emb_base", 10000.0, 1e15);
  MAGISTER_CHECK(config.rope.theta >= 1e-3, ExitCode::kData,
                 "{}: rotary_emb_base is {} (a base must be at least 0.001); fetch the config again",
                 printable(source.path()), config.rope.theta);
}

// In GGUF files, all rows of q precede those of k and v. The files do not say which GELU the model has: it is the exact
// one, as in Pythia and in transformers' default. Source: llama.cpp's converter of GPTNeoXForCausalLM.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  set_blocks(config, source.boolean("use_parallel_residual"));
  config.qkv_bias = source.has_tensor("blk.0.attn_qkv.bias");
  config.activation = Activation::kGelu;
  MAGISTER_CHECK(
      config.num_hidden_layers != 44 || config.hidden_size != 6144, ExitCode::kData,
      "{}: 44 layers of {} are GPT-NeoX-20B (its GELU is the tanh form, which such files do not say); use the "
      "model's safetensors folder",
      printable(source.path()), config.hidden_size);
}

}  // namespace gpt_neox

extern const Family kGptNeoxFamily;
const Family kGptNeoxFamily{.name = "gpt_neox",
                            .model_type = "gpt_neox",
                            .architecture = "GPTNeoXForCausalLM",
                            .gguf_architecture = "gptneox",
                            .read_hf = gpt_neox::read_hf,
                            .read_gguf = gpt_neox::read_gguf,
                            .computes = gpt_neox::kComputes,
                            .hf_renames = gpt_neox::kRenames,
                            .hf_layers = "gpt_neox.layers.",
                            .hf_ignored = gpt_neox::kIgnored};

}  // namespace magister
