// Llama 1 to 3.x, and models saved in the same form (SmolLM2, ...). GGUF files of Mistral models also have the
// architecture llama. For this architecture, GGUF's converter reorders the rows of q and k into interleaved rotary
// pairs.
// Sources: transformers LlamaConfig; ggml GGUF specification.
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

// This key is for GGUF files. config.json has another name for it, which stays refused.
constexpr const char* kComputes[] = {"expert_count"};

}  // namespace llama

extern const Family kLlamaFamily;
const Family kLlamaFamily{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .gguf_architecture = "llama",
                          .gguf_interleaved_rope_rows = true,
                          .read_hf = llama::read_hf,
                          .read_gguf = llama::read_gguf,
                          .computes = llama::kComputes};

}  // namespace magister
