// GLM-4: GLM-4-9B (glm) and GLM-4-0414 (glm4), which has norms also on the output of blocks. Half of each head is
// rotated, in interleaved pairs. Gate and up are one tensor in the file.
// Source: transformers GlmConfig, Glm4Config and Glm4DecoderLayer; llama.cpp for GGUF files of GLM-4-0414.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace glm4 {

constexpr const char* kComputes[] = {"partial_rotary_factor", "rope.dimension_count"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"post_attention_layernorm.weight", "post_self_attn_layernorm.weight"},
    {"pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"},
    {"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.fused_gate_up_proj = true;
  if (!source.has("head_dim")) config.head_dim = 128;  // the class's default
  MAGISTER_CHECK(
      !source.is_null("partial_rotary_factor"), ExitCode::kData,
      "{}: partial_rotary_factor is null (programs disagree whether half or all of a head is rotated then); write "
      "a number",
      printable(source.path()));
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.5);
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 2;  // the classes' default
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1.5625e-7;
  config.qkv_bias = source.boolean_or("attention_bias", true);
}

void read_hf_4(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.norm_placement = NormPlacement::kBoth;
}

// Layers for multi-token prediction would follow the model's own layers and count in block_count. Their tensors are
// refused by name.
void read_gguf_4(const GgufConfig&, ModelConfig& config) {
  config.fused_gate_up_proj = true;
  config.norm_placement = NormPlacement::kBoth;
}

// The text decoder of GLM-4.1V: its three positions of a token are one number in a text without images.
constexpr const char* kComputesV[] = {"partial_rotary_factor", "mrope", "rope_parameters.mrope_section"};
constexpr std::pair<const char*, std::int64_t> kDefaultsV[] = {{"vocab_size", 151552},
                                                               {"hidden_size", 4096},
                                                               {"intermediate_size", 13696},
                                                               {"num_hidden_layers", 40},
                                                               {"num_attention_heads", 32},
                                                               {"num_key_value_heads", 2},
                                                               {"max_position_embeddings", 32768}};

void read_v(const HfConfig& source, ModelConfig& config) {
  config.fused_gate_up_proj = config.qkv_bias = true;
  config.norm_placement = NormPlacement::kBoth;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  MAGISTER_CHECK(config.head_dim * config.num_attention_heads == config.hidden_size, ExitCode::kData,
                 "{}: {} heads of {} are not the hidden size {} (heads of another size are not defined in this "
                 "family); fetch the config again",
                 printable(source.path()), config.num_attention_heads, config.head_dim, config.hidden_size);
}

}  // namespace glm4

extern const Family kGlmFamily, kGlm4Family, kGlm4vFamily;
const Family kGlm4vFamily{.name = "glm4v_text",
                          .model_type = "glm4v_text",
                          .architecture = "Glm4vForConditionalGeneration",
                          .read_hf = glm4::read_v,
                          .computes = glm4::kComputesV,
                          .hf_renames = glm4::kRenames,
                          .hf_interleaved_rope_rows = true,
                          .classifier = "",
                          .hf_defaults = glm4::kDefaultsV};
const Family kGlmFamily{.name = "glm",
                        .model_type = "glm",
                        .architecture = "GlmForCausalLM",
                        .read_hf = glm4::read_hf,
                        .computes = glm4::kComputes,
                        .hf_interleaved_rope_rows = true};
const Family kGlm4Family{.name = "glm4",
                         .model_type = "glm4",
                         .architecture = "Glm4ForCausalLM",
                         .gguf_architecture = "glm4",
                         .gguf_interleaved_rope_rows = true,
                         .read_hf = glm4::read_hf_4,
                         .read_gguf = glm4::read_gguf_4,
                         .computes = glm4::kComputes,
                         .hf_renames = glm4::kRenames,
                         .hf_interleaved_rope_rows = true};

}  // namespace magister
