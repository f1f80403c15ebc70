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
// Shared experts whose MLP has this many columns: several experts of as many columns as the routed ones where that
// divides, else one. The experts' own numbers are read already.
void read_shared_experts(ModelConfig& config, std::int64_t columns);
// DeepSeek-V3's router and what took it over: sigmoids, a bias for the choice, groups, a factor, shared experts, and
// dense layers first.
void read_sigmoid_router(const HfConfig& source, ModelConfig& config, bool has_shared = true);
// For each layer whether it has experts: from mlp_layer_types; without the key all but the first `dense` have.
std::vector<bool> sparse_layers(const HfConfig& source, std::int64_t dense, std::int64_t num_layers);
// The same in Qwen's configs: every decoder_sparse_step-th layer, but not those that mlp_only_layers lists.
std::vector<bool> stepped_sparse_layers(const HfConfig& source, std::int64_t num_layers);
// Throws Error(kData) where first_k_dense_replace, which the family's class does not read, contradicts layer_is_sparse.
void check_dense_layers(const HfConfig& source, const ModelConfig& config);

}  // namespace magister
