// Fields that families with experts share: the number of experts, the number per token, and their width.
// Source: transformers MixtralConfig, Qwen3MoeConfig, OlmoeConfig; llama.cpp's keys for GGUF files, where one tensor
// holds a weight of all experts.
#pragma once

#include "model/families/family.h"

namespace magister {

// Keys that these readers handle, for Family::computes.
inline constexpr const char* kExpertKeys[] = {"num_experts", "num_local_experts", "expert_count", "rope.scaling.yarn"};

// columns_key: the key of an expert's width. absent_*: values for a config without the key.
void read_experts(const HfConfig& source, ModelConfig& config, const char* columns_key, std::int64_t absent_experts,
                  std::int64_t absent_per_token);
void read_experts(const GgufConfig& source, ModelConfig& config, const char* columns_key);

constexpr std::int64_t kMostExperts = 1 << 12;
// Shared experts whose MLP has this many columns: as many as an expert has, once or several times. The experts' own
// numbers are read already.
void read_shared_experts(const HfConfig& source, ModelConfig& config, std::int64_t columns);
// DeepSeek-V3's router and what took it over: sigmoids, a bias for the choice, groups, a factor, shared experts, and
// dense layers first.
void read_sigmoid_router(const HfConfig& source, ModelConfig& config);
// The layers with experts by mlp_layer_types ("dense", "sparse"); empty: the config has no such list. Throws
// Error(kData) for other entries. check_config() checks their number.
std::vector<bool> sparse_layers(const HfConfig& source);

}  // namespace magister
