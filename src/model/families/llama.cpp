// Llama 1 to 3.x, and models saved in the same form (SmolLM2, ...). GGUF files of Mistral models also have the
// architecture llama. For this architecture, GGUF's converter reorders the rows of q and k into interleaved rotary
// pairs.
// Seed-OSS has biases of its own on attention, IQuest-Coder and InternLM3 other defaults.
// Sources: transformers LlamaConfig, SeedOssConfig, IQuestCoderConfig and InternLM3Config; ggml GGUF specification.
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

// These keys are for GGUF files. config.json has another name for the first, which stays refused.
constexpr const char* kComputes[] = {"expert_count", "rope.scaling.yarn"};
constexpr const char* kYarn[] = {"yarn"};

}  // namespace llama

extern const Family kLlamaFamily, kSeedOssFamily, kIQuestCoderFamily, kInternLm3Family;
const Family kLlamaFamily{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .gguf_architecture = "llama",
                          .gguf_interleaved_rope_rows = true,
                          .read_hf = llama::read_hf,
                          .read_gguf = llama::read_gguf,
                          .computes = llama::kComputes};
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

}  // namespace magister
