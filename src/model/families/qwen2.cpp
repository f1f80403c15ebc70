// Qwen2 and Qwen2.5: Llama's layers, always with biases on q, k and v, and with windows in some layers if these are
// enabled.
// Source: transformers Qwen2Config and Qwen2Attention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/qwen_windows.h"

namespace magister {
namespace qwen2 {

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = true;
  read_qwen_windows(source, config);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.qkv_bias = true;
  refuse_qwen_windows(source);
}

}  // namespace qwen2

extern const Family kQwen2Family;
const Family kQwen2Family{.name = "qwen2",
                          .model_type = "qwen2",
                          .architecture = "Qwen2ForCausalLM",
                          .gguf_architecture = "qwen2",
                          .read_hf = qwen2::read_hf,
                          .read_gguf = qwen2::read_gguf};

}  // namespace magister
