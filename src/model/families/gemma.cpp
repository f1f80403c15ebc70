// Gemma 1: Llama's layers with embeddings times the square root of the hidden size, norms with weights 1 + w, GELU, and
// a head size of 256.
// Source: transformers GemmaConfig and GemmaModel.
#include "model/families/gemma_fields.h"

namespace magister {
namespace gemma {

constexpr const char* kComputes[] = {"gelu"};  // Gemma 1's files call the tanh approximation so

void read_hf(const HfConfig& source, ModelConfig& config) { read_gemma_fields(source, config); }
void read_gguf(const GgufConfig& source, ModelConfig& config) { read_gemma_fields(source, config); }

}  // namespace gemma

extern const Family kGemmaFamily;
const Family kGemmaFamily{.name = "gemma",
                          .model_type = "gemma",
                          .architecture = "GemmaForCausalLM",
                          .gguf_architecture = "gemma",
                          .read_hf = gemma::read_hf,
                          .read_gguf = gemma::read_gguf,
                          .computes = gemma::kComputes};

}  // namespace magister
