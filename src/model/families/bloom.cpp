// BLOOM and MPT: layers without rotary embeddings whose scores fall with the distance (ALiBi), and an MLP without a
// gate of four times the hidden size. BLOOM has biases everywhere and a layer norm on the embeddings; MPT has neither.
// Source: transformers BloomConfig, BloomAttention, BloomMLP, MptConfig, MptAttention and build_mpt_alibi_tensor.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace bloom {

using Rename = std::pair<const char*, const char*>;
constexpr const char* kComputes[] = {"gelu by the normal distribution", "clip_qkv"};
constexpr Rename kKeys[] = {{"max_position_embeddings", "seq_length"}};
constexpr Rename kOtherKeys[] = {
    {"hidden_size", "n_embed"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"max_position_embeddings", 2048}};
constexpr Rename kRenames[] = {{"model.embed_tokens.weight", "transformer.word_embeddings.weight"},
                               {"model.embed_norm.weight", "transformer.word_embeddings_layernorm.weight"},
                               {"model.embed_norm.bias", "transformer.word_embeddings_layernorm.bias"},
                               {"model.norm.weight", "transformer.ln_f.weight"},
                               {"model.norm.bias", "transformer.ln_f.bias"},
                               {"self_attn.qkv_proj.weight", "self_attention.query_key_value.weight"},
                               {"self_attn.qkv_proj.bias", "self_attention.query_key_value.bias"},
                               {"self_attn.o_proj.weight", "self_attention.dense.weight"},
                               {"self_attn.o_proj.bias", "self_attention.dense.bias"},
                               {"mlp.up_proj.weight", "mlp.dense_h_to_4h.weight"},
                               {"mlp.up_proj.bias", "mlp.dense_h_to_4h.bias"},
                               {"mlp.down_proj.weight", "mlp.dense_4h_to_h.weight"},
                               {"mlp.down_proj.bias", "mlp.dense_4h_to_h.bias"}};

void set_blocks(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.gated_mlp = false;
  config.fused_qkv_proj = true;
  config.num_key_value_heads = config.num_attention_heads;
  config.rms_norm_eps = source.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1.0);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.intermediate_size = 4 * config.hidden_size;  // whatever the config says
  config.rope = {};
  config.rotary_dim = 0;
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
  config.alibi_max = 8.0;
  need_even_heads(source, config);
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  need_flag(source, "apply_residual_connection_post_layernorm", false, false);
  set_blocks(source, config);
  config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.fused_qkv_by_head = config.embedding_norm = true;
  config.activation = Activation::kGeluTanh;
}

constexpr Rename kMptKeys[] = {{"hidden_size", "d_model"},
                               {"num_hidden_layers", "n_layers"},
                               {"num_attention_heads", "n_heads"},
                               {"max_position_embeddings", "max_seq_len"}};
constexpr std::pair<const char*, std::int64_t> kMptDefaults[] = {{"max_position_embeddings", 2048}};
constexpr Rename kMptRenames[] = {{"model.embed_tokens.weight", "transformer.wte.weight"},
                                  {"model.norm.weight", "transformer.norm_f.weight"},
                                  {"input_layernorm.weight", "norm_1.weight"},
                                  {"post_attention_layernorm.weight", "norm_2.weight"},
                                  {"self_attn.qkv_proj.weight", "attn.Wqkv.weight"},
                                  {"self_attn.o_proj.weight", "attn.out_proj.weight"},
                                  {"mlp.up_proj.weight", "ffn.up_proj.weight"},
                                  {"mlp.down_proj.weight", "ffn.down_proj.weight"}};

void read_mpt(const HfConfig& source, ModelConfig& config) {
  set_blocks(source, config);
  config.activation = Activation::kGelu;
  // transformers 5.23 computes the first value of each, whatever the config says.
  need_flag(source, "no_bias", true, true);
  need_flag(source, "attn_config.alibi", true, true);
  need_flag(source, "attn_config.qk_ln", false, false);
  need_flag(source, "attn_config.prefix_lm", false, false);
  source.integer_or("attn_config.alibi_bias_max", 8, 8, 8);
  source.integer_or("expansion_ratio", 4, 4, 4);
  const std::string type = source.text_or("attn_config.attn_type", "multihead_attention");
  MAGISTER_CHECK(type == "multihead_attention", ExitCode::kData,
                 "{}: attn_config.attn_type is \"{}\" (only multihead_attention is computed); use another model",
                 printable(source.path()), printable(type));
  config.clip_qkv = source.number_or("attn_config.clip_qkv", 0.0, 0.0, 1e6);
  config.attention_multiplier = source.number_or("attn_config.softmax_scale", 0.0, 0.0, 1e6);
}

}  // namespace bloom

extern const Family kBloomFamily, kMptFamily;
const Family kBloomFamily{.name = "bloom",
                          .model_type = "bloom",
                          .architecture = "BloomForCausalLM",
                          .read_hf = bloom::read_hf,
                          .computes = bloom::kComputes,
                          .hf_renames = bloom::kRenames,
                          .hf_keys = bloom::kKeys,
                          .hf_other_keys = bloom::kOtherKeys,
                          .hf_defaults = bloom::kDefaults,
                          .default_mlp_widths = 4,
                          .hf_layers = "transformer.h.",
                          .hf_optional_prefix = "transformer."};
const Family kMptFamily{.name = "mpt",
                        .model_type = "mpt",
                        .architecture = "MptForCausalLM",
                        .read_hf = bloom::read_mpt,
                        .computes = bloom::kComputes,
                        .hf_renames = bloom::kMptRenames,
                        .hf_keys = bloom::kMptKeys,
                        .hf_object = "attn_config",
                        .hf_defaults = bloom::kMptDefaults,
                        .default_mlp_widths = 4,
                        .hf_layers = "transformer.blocks."};

}  // namespace magister
