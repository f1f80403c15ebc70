// What families with experts share: how many there are, how many a token has, and their width.
// Source: transformers MixtralConfig, Qwen3MoeConfig, OlmoeConfig; llama.cpp's keys for GGUF files, where all experts' weights of one kind
// are one tensor.
#pragma once

#include "model/families/family.h"

namespace magister {

// Keys that these readers compute.
inline constexpr const char* kExpertKeys[] = {"num_experts", "num_local_experts", "expert_count"};

// columns_key: of an expert. absent_*: of a config that does not say.
void read_experts(const HfConfig& source, ModelConfig& config, const char* columns_key, std::int64_t absent_experts,
                  std::int64_t absent_per_token);
void read_experts(const GgufConfig& source, ModelConfig& config, const char* columns_key);

}  // namespace magister
