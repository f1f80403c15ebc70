// Gemma 1: Llama's layers with embeddings times the root of the hidden size, norms by 1 + w, GELU and heads of 256.
// Source: transformers GemmaConfig and GemmaModel.
#include "model/families/gemma_fields.h"

namespace magister {
namespace {

void read_hf(const HfConfig& source, ModelConfig& config) { read_gemma_fields(source, config); }
void read_gguf(const GgufConfig& source, ModelConfig& config) { read_gemma_fields(source, config); }

}  // namespace

extern const Family kGemmaFamily;
const Family kGemmaFamily{"gemma", "gemma", "GemmaForCausalLM", "gemma",
                          false,   read_hf, read_gguf,          std::span(kGemmaComputes).first(1)};

}  // namespace magister
