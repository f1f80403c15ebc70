// Llama 1 to 3.x, and models saved in the same form (SmolLM2, ...). GGUF files of Mistral models also have the
// architecture llama. For this architecture, GGUF's converter reorders the rows of q and k into interleaved rotary
// pairs.
// Seed-OSS has biases of its own on attention, IQuest-Coder and InternLM3 other defaults, EXAONE 3 other names.
// Sources: transformers LlamaConfig, SeedOssConfig, IQuestCoderConfig, InternLM3Config and ExaoneConfig, for EXAONE's
// names its conversion_mapping.py; ggml GGUF specification.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace llama {

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  // transformers' Llama ignores a window. A config with one was meant for another class.
  const bool window = source.has("sliding_window") && source.boolean_or("use_sliding_window", true);
  MAGISTER_CHECK(
      !window, ExitCode::kData,
      "{}: sliding_window is set (model_type llama has none, so it is unknown whether the model has it); make it null, "
      "or model_type mistral",
      printable(source.path()));
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(type == "full_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (model_type llama has full_attention only); use another model",
                   printable(source.path()), printable(type));
  }
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.sliding_window = source.integer_or("attention.sliding_window", 0, 0, INT32_MAX);
  if (source.integer_or("expert_count", 0, 0, 1 << 12) == 0) return;
  read_experts(source, config, "feed_forward_length");  // Mixtral
  config.norm_topk_prob = true;
}

void read_hf_seed(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  config.qkv_bias = source.boolean_or("attention_bias", true);
  config.o_bias = source.boolean_or("attention_out_bias", false);
  config.mlp_bias = source.boolean_or("mlp_bias", false);
}

void read_hf_iquest(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
}

// The authors' files say qkv_bias and bias, transformers' attention_bias and mlp_bias.
void read_hf_internlm(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (source.is_absent("head_dim")) config.head_dim = 128;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 2;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  source.refuse_two("attention_bias", "qkv_bias");
  source.refuse_two("mlp_bias", "bias");
  const bool qkv = source.boolean_or("qkv_bias", config.qkv_bias), mlp = source.boolean_or("bias", config.mlp_bias);
  MAGISTER_CHECK(qkv == mlp, ExitCode::kData,
                 "{}: qkv_bias is {} and bias {} (all products of this family have biases or none); use another model",
                 printable(source.path()), qkv, mlp);
  config.qkv_bias = config.o_bias = config.mlp_bias = qkv;
}

// EXAONE 3, 3.5 and Deep. The authors' config.json has these names, transformers' the common ones.
constexpr std::pair<const char*, const char*> kExaoneOtherKeys[] = {
    {"num_hidden_layers", "num_layers"}, {"rms_norm_eps", "layer_norm_epsilon"}, {"hidden_act", "activation_function"}};
constexpr std::pair<const char*, const char*> kExaoneRenames[] = {
    {"model.embed_tokens.weight", "transformer.wte.weight"},
    {"model.norm.weight", "transformer.ln_f.weight"},
    {"input_layernorm.weight", "ln_1.weight"},
    {"post_attention_layernorm.weight", "ln_2.weight"},
    {"self_attn.q_proj.weight", "attn.attention.q_proj.weight"},
    {"self_attn.q_proj.bias", "attn.attention.q_proj.bias"},
    {"self_attn.k_proj.weight", "attn.attention.k_proj.weight"},
    {"self_attn.k_proj.bias", "attn.attention.k_proj.bias"},
    {"self_attn.v_proj.weight", "attn.attention.v_proj.weight"},
    {"self_attn.v_proj.bias", "attn.attention.v_proj.bias"},
    {"self_attn.o_proj.weight", "attn.attention.out_proj.weight"},
    {"self_attn.o_proj.bias", "attn.attention.out_proj.bias"},
    {"mlp.gate_proj.weight", "mlp.c_fc_0.weight"},
    {"mlp.gate_proj.bias", "mlp.c_fc_0.bias"},
    {"mlp.up_proj.weight", "mlp.c_fc_1.weight"},
    {"mlp.up_proj.bias", "mlp.c_fc_1.bias"},
    {"mlp.down_proj.weight", "mlp.c_proj.weight"},
    {"mlp.down_proj.bias", "mlp.c_proj.bias"}};
constexpr std::pair<const char*, std::int64_t> kExaoneDefaults[] = {{"num_key_value_heads", 8},
                                                                    {"intermediate_size", 14336}};

void read_hf_exaone(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
}

void read_gguf_exaone(const GgufConfig&, ModelConfig&) {}  // the common keys say all

constexpr std::pair<const char*, std::int64_t> kTextDefaults[] = {
    {"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 11008},
    {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"max_position_embeddings", 2048}};

// These keys are for GGUF files. config.json has another name for the first, which stays refused.
constexpr const char* kComputes[] = {"expert_count", "rope.scaling.yarn"};
constexpr const char* kYarn[] = {"yarn"};

}  // namespace llama

extern const Family kLlamaFamily, kSeedOssFamily, kIQuestCoderFamily, kInternLm3Family, kExaoneFamily;
const Family kLlamaFamily{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .gguf_architecture = "llama",
                          .gguf_interleaved_rope_rows = true,
                          .read_hf = llama::read_hf,
                          .read_gguf = llama::read_gguf,
                          .computes = llama::kComputes,
                          .hf_text_defaults = llama::kTextDefaults};
const Family kSeedOssFamily{.name = "seed_oss",
                            .model_type = "seed_oss",
                            .architecture = "SeedOssForCausalLM",
                            .read_hf = llama::read_hf_seed,
                            .computes = llama::kYarn};
const Family kIQuestCoderFamily{.name = "iquestcoder",
                                .model_type = "iquestcoder",
                                .architecture = "LlamaForCausalLM",
                                .read_hf = llama::read_hf_iquest,
                                .classifier = "",
                                .published_architecture = "IQuestCoderForCausalLM"};
const Family kInternLm3Family{.name = "internlm3",
                              .model_type = "internlm3",
                              .architecture = "LlamaForCausalLM",
                              .read_hf = llama::read_hf_internlm,
                              .classifier = "",
                              .published_architecture = "InternLM3ForCausalLM"};
const Family kExaoneFamily{.name = "exaone",
                           .model_type = "exaone",
                           .architecture = "LlamaForCausalLM",
                           .gguf_architecture = "exaone",
                           .read_hf = llama::read_hf_exaone,
                           .read_gguf = llama::read_gguf_exaone,
                           .hf_renames = llama::kExaoneRenames,
                           .default_rope_theta = 500000.0,
                           .classifier = "",
                           .published_architecture = "ExaoneForCausalLM",
                           .hf_other_keys = llama::kExaoneOtherKeys,
                           .hf_defaults = llama::kExaoneDefaults,
                           .hf_layers = "transformer.h."};

}  // namespace magister
