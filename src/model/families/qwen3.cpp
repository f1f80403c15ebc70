// Qwen3 (dense): an RMS norm over each head of q and k before the rotary embedding, and a head size of its own.
// Source: transformers Qwen3Config and Qwen3Attention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/qwen_windows.h"

namespace magister {
namespace qwen3 {

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("head_dim")) config.head_dim = 128;  // the class's default; hidden_size / heads is not used
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_qwen_windows(source, config);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.qk_norm = true;
  refuse_qwen_windows(source);
}

}  // namespace qwen3

extern const Family kQwen3Family;
const Family kQwen3Family{.name = "qwen3",
                          .model_type = "qwen3",
                          .architecture = "Qwen3ForCausalLM",
                          .gguf_architecture = "qwen3",
                          .read_hf = qwen3::read_hf,
                          .read_gguf = qwen3::read_gguf};

}  // namespace magister
