// Reads of latent attention's numbers, for the families that have it.
#pragma once

#include "model/families/family.h"

namespace magister {

// The config's keys that latent attention computes, for Family::computes.
inline constexpr const char* kLatentComputes[] = {"kv_lora_rank",      "yarn",        "n_routed_experts",
                                                  "num_local_experts", "num_experts", "partial_rotary_factor"};

// Fills config.latent, the sizes of heads, the biases of attention, and the factor of its scores: with a scaled rotary
// embedding and mscale_all_dim it has the square of YaRN's mscale, in addition to the factor of cosines and sines.
// value_dim: numbers of a head's values where the config does not say; 0: it must.
void read_latent(const HfConfig& source, ModelConfig& config, std::int64_t value_dim = 0);

// Fills config.latent->indexer from index_n_heads, index_head_dim and index_topk; read_latent() comes first. pairs: the
// class's order of the indexer's rotated rows.
void read_indexer(const HfConfig& source, ModelConfig& config, bool pairs);

// Throws Error(kData) unless `key` is absent or `value`, which is all that transformers computes.
void require_text(const HfConfig& source, const char* key, const char* value);
// Throws Error(kData) unless moe_layer_freq is absent or 1.
void require_every_layer(const HfConfig& source);

}  // namespace magister
