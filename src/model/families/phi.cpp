// Phi 1 to 2, GPT-J and CodeGen: attention and an MLP without a gate beside each other, both behind one layer norm with
// a bias, a part of each head rotated, and a head that adds a bias to logits. GPT-J and CodeGen rotate neighbours and
// have no biases in attention; CodeGen's file holds q, k and v in four blocks.
// Source: transformers PhiConfig, PhiDecoderLayer, GPTJConfig, GPTJBlock, GPTJAttention and CodeGenAttention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace phi {

constexpr const char* kComputes[] = {"partial_rotary_factor", "gelu by the normal distribution"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"model.norm.weight", "model.final_layernorm.weight"},
                                                            {"model.norm.bias", "model.final_layernorm.bias"},
                                                            {"self_attn.o_proj.weight", "self_attn.dense.weight"},
                                                            {"self_attn.o_proj.bias", "self_attn.dense.bias"},
                                                            {"mlp.up_proj.weight", "mlp.fc1.weight"},
                                                            {"mlp.up_proj.bias", "mlp.fc1.bias"},
                                                            {"mlp.down_proj.weight", "mlp.fc2.weight"},
                                                            {"mlp.down_proj.bias", "mlp.fc2.bias"}};

void set_blocks(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.mlp_bias = config.head_bias = config.parallel_residual = true;
  config.gated_mlp = false;
  if (!source.has("hidden_act")) config.activation = Activation::kGeluTanh;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  set_blocks(source, config);
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  config.qkv_bias = config.o_bias = true;
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.5);
}

constexpr std::pair<const char*, const char*> kGptJKeys[] = {{"hidden_size", "n_embd"},
                                                             {"num_hidden_layers", "n_layer"},
                                                             {"num_attention_heads", "n_head"},
                                                             {"intermediate_size", "n_inner"},
                                                             {"max_position_embeddings", "n_positions"},
                                                             {"hidden_act", "activation_function"}};
constexpr const char* kGptJComputes[] = {"gelu by the normal distribution"};
constexpr std::pair<const char*, const char*> kGptJRenames[] = {{"model.embed_tokens.weight", "transformer.wte.weight"},
                                                                {"model.norm.weight", "transformer.ln_f.weight"},
                                                                {"model.norm.bias", "transformer.ln_f.bias"},
                                                                {"input_layernorm.weight", "ln_1.weight"},
                                                                {"input_layernorm.bias", "ln_1.bias"},
                                                                {"self_attn.q_proj.weight", "attn.q_proj.weight"},
                                                                {"self_attn.k_proj.weight", "attn.k_proj.weight"},
                                                                {"self_attn.v_proj.weight", "attn.v_proj.weight"},
                                                                {"self_attn.qkv_proj.weight", "attn.qkv_proj.weight"},
                                                                {"self_attn.o_proj.weight", "attn.out_proj.weight"},
                                                                {"mlp.up_proj.weight", "mlp.fc_in.weight"},
                                                                {"mlp.up_proj.bias", "mlp.fc_in.bias"},
                                                                {"mlp.down_proj.weight", "mlp.fc_out.weight"},
                                                                {"mlp.down_proj.bias", "mlp.fc_out.bias"}};
constexpr const char* kIgnored[] = {"attn.bias", "attn.masked_bias", "attn.causal_mask", "attn.embed_positions"};

void read_gptj(const HfConfig& source, ModelConfig& config) {
  set_blocks(source, config);
  config.num_key_value_heads = config.num_attention_heads;
  need_even_heads(source, config);
  config.rms_norm_eps = source.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1.0);
  config.rope = {};  // the class has the base 10000 and no scaling
  MAGISTER_CHECK(!source.is_null("rotary_dim"), ExitCode::kData,
                 "{}: rotary_dim is null (transformers takes the frequencies of the whole hidden size then, which is "
                 "not supported); use another model",
                 printable(source.path()));
  const std::int64_t rotary = source.integer_or("rotary_dim", 64, 2, config.head_dim);
  config.rotary_dim = rotary == config.head_dim ? 0 : rotary;
}

void read_codegen(const HfConfig& source, ModelConfig& config) {
  read_gptj(source, config);
  MAGISTER_CHECK(config.num_attention_heads % 4 == 0, ExitCode::kData,
                 "{}: n_head is {} (q, k and v are in four blocks of heads); fetch the config again",
                 printable(source.path()), config.num_attention_heads);
  config.fused_qkv_proj = config.fused_qkv_by_quarter = true;
}

}  // namespace phi

extern const Family kPhiFamily, kGptJFamily, kCodeGenFamily;
const Family kPhiFamily{.name = "phi",
                        .model_type = "phi",
                        .architecture = "PhiForCausalLM",
                        .read_hf = phi::read_hf,
                        .computes = phi::kComputes,
                        .hf_renames = phi::kRenames};
const Family kGptJFamily{.name = "gptj",
                         .model_type = "gptj",
                         .architecture = "GPTJForCausalLM",
                         .read_hf = phi::read_gptj,
                         .computes = phi::kGptJComputes,
                         .hf_renames = phi::kGptJRenames,
                         .hf_interleaved_rope_rows = true,
                         .hf_keys = phi::kGptJKeys,
                         .default_mlp_widths = 4,
                         .hf_layers = "transformer.h.",
                         .hf_ignored = phi::kIgnored};
const Family kCodeGenFamily{.name = "codegen",
                            .model_type = "codegen",
                            .architecture = "CodeGenForCausalLM",
                            .read_hf = phi::read_codegen,
                            .computes = phi::kGptJComputes,
                            .hf_renames = phi::kGptJRenames,
                            .hf_interleaved_rope_rows = true,
                            .classifier = "",
                            .hf_keys = phi::kGptJKeys,
                            .default_mlp_widths = 4,
                            .hf_layers = "transformer.h.",
                            .hf_ignored = phi::kIgnored};

}  // namespace magister
