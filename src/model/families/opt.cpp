// OPT: GPT-2's layers with ReLU; the table of positions has two rows before that of a text's first token.
// BioGPT: the same with GELU, scaled embeddings and names of its own.
// Source: transformers OPTConfig, OPTDecoderLayer, OPTLearnedPositionalEmbedding (arXiv 2205.01068), BioGptConfig and
// BioGptDecoderLayer.
#include <cmath>

#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace opt {

constexpr std::pair<const char*, const char*> kKeys[] = {
    {"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"}, {"initializer_range", "init_std"}};
constexpr const char* kComputes[] = {"relu", "gelu by the normal distribution"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"model.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
    {"model.embed_positions.weight", "model.decoder.embed_positions.weight"},
    {"model.norm.weight", "model.decoder.final_layer_norm.weight"},
    {"model.norm.bias", "model.decoder.final_layer_norm.bias"},
    {"input_layernorm.weight", "self_attn_layer_norm.weight"},
    {"input_layernorm.bias", "self_attn_layer_norm.bias"},
    {"self_attn.o_proj.weight", "self_attn.out_proj.weight"},
    {"self_attn.o_proj.bias", "self_attn.out_proj.bias"},
    {"post_attention_layernorm.weight", "final_layer_norm.weight"},
    {"post_attention_layernorm.bias", "final_layer_norm.bias"},
    {"mlp.up_proj.weight", "fc1.weight"},
    {"mlp.up_proj.bias", "fc1.bias"},
    {"mlp.down_proj.weight", "fc2.weight"},
    {"mlp.down_proj.bias", "fc2.bias"}};

// Layers of this kind, whatever the names: learned positions after two unused rows, layer norms, an MLP without a gate.
void set_layers(ModelConfig& config, bool has_biases) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.learned_positions = true;
  config.skipped_position_rows = 2;
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
  config.rope = {};
  config.gated_mlp = false;
  config.qkv_bias = config.o_bias = config.mlp_bias = has_biases;
  config.num_key_value_heads = config.num_attention_heads;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  need_flag(source, "do_layer_norm_before", true, true);
  need_flag(source, "_remove_final_layer_norm", false, false);
  need_flag(source, "layer_norm_elementwise_affine", true, true);
  const std::int64_t width = source.integer_or("word_embed_proj_dim", config.hidden_size, 1, 1 << 20);
  MAGISTER_CHECK(width == config.hidden_size, ExitCode::kData,
                 "{}: word_embed_proj_dim is {} and hidden_size {} (embeddings of another size are not supported); use "
                 "another model",
                 printable(source.path()), width, config.hidden_size);
  set_layers(config, source.boolean_or("enable_bias", true));
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  if (!source.has("hidden_act")) config.activation = Activation::kRelu;
  need_even_heads(source, config);
}

constexpr std::pair<const char*, const char*> kBioRenames[] = {
    {"model.embed_tokens.weight", "biogpt.embed_tokens.weight"},
    {"model.embed_positions.weight", "biogpt.embed_positions.weight"},
    {"model.norm.weight", "biogpt.layer_norm.weight"},
    {"model.norm.bias", "biogpt.layer_norm.bias"},
    {"lm_head.weight", "output_projection.weight"},
    {"input_layernorm.weight", "self_attn_layer_norm.weight"},
    {"input_layernorm.bias", "self_attn_layer_norm.bias"},
    {"self_attn.o_proj.weight", "self_attn.out_proj.weight"},
    {"self_attn.o_proj.bias", "self_attn.out_proj.bias"},
    {"post_attention_layernorm.weight", "final_layer_norm.weight"},
    {"post_attention_layernorm.bias", "final_layer_norm.bias"},
    {"mlp.up_proj.weight", "fc1.weight"},
    {"mlp.up_proj.bias", "fc1.bias"},
    {"mlp.down_proj.weight", "fc2.weight"},
    {"mlp.down_proj.bias", "fc2.bias"}};

void read_bio(const HfConfig& source, ModelConfig& config) {
  set_layers(config, true);
  config.rms_norm_eps = 1e-5;  // transformers does not read layer_norm_eps
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  if (source.boolean_or("scale_embedding", true))
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  if (!source.has("hidden_act")) config.activation = Activation::kGelu;
  need_even_heads(source, config);
}

}  // namespace opt

extern const Family kOptFamily, kBioGptFamily;
const Family kBioGptFamily{.name = "biogpt",
                           .model_type = "biogpt",
                           .architecture = "BioGptForCausalLM",
                           .read_hf = opt::read_bio,
                           .computes = opt::kComputes,
                           .hf_renames = opt::kBioRenames,
                           .classifier = "BioGptForSequenceClassification",
                           .hf_layers = "biogpt.layers."};
const Family kOptFamily{.name = "opt",
                        .model_type = "opt",
                        .architecture = "OPTForCausalLM",
                        .read_hf = opt::read_hf,
                        .computes = opt::kComputes,
                        .hf_renames = opt::kRenames,
                        .hf_keys = opt::kKeys,
                        .hf_layers = "model.decoder.layers.",
                        .hf_optional_prefix = "model."};

}  // namespace magister
