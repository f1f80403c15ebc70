// Fields that Gemma 1, 2 and 3 share: embeddings times the square root of the hidden size, norms with weights 1 + w,
// GELU, a head size of its own, a tied head.
// Source: transformers GemmaConfig, Gemma2Config and Gemma3TextConfig; llama.cpp's conversion, which stores 1 + w.
#pragma once

#include "model/families/family.h"

namespace magister {

void read_gemma_fields(const HfConfig& source, ModelConfig& config);
void read_gemma_fields(const GgufConfig& source, ModelConfig& config);

// For Gemma 2 and 3: norms before and after each block, query_pre_attn_scalar for the scale of attention, windows in
// some layers. attention_cap, logit_cap: for a config without these keys; 0: none.
void read_gemma_layers(const HfConfig& source, ModelConfig& config, double attention_cap, double logit_cap,
                       std::int64_t sliding_pattern);
void read_gemma_layers(const GgufConfig& source, ModelConfig& config, double attention_cap, double logit_cap,
                       std::int64_t sliding_pattern, std::int64_t least_window = 1);

}  // namespace magister
