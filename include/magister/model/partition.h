// Partition: the heads, MLP columns and vocabulary rows of a shard. The parts are uneven where the numbers do not
// divide: SmolLM2's 9 heads and 3 KV heads over 2 shards give 6 + 3 heads on 2 + 1 KV heads. Each KV head stays
// together with all its query heads. If there are fewer KV heads than shards, query heads are divided, and shards whose
// heads use the same KV head each hold a copy of it.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/model_config.h"

namespace magister {

struct Partition {
  IndexRange heads;                        // query heads of this shard
  IndexRange kv_heads;                     // KV heads that these query heads use
  IndexRange mlp;                          // intermediate columns of the MLP
  IndexRange expert;                       // intermediate columns of every expert; empty: no experts
  IndexRange shared_expert;                // the same of every shared expert
  IndexRange vocab;                        // rows of embeddings and head
  IndexRange delta_heads{}, delta_keys{};  // the same in layers with linear attention, by value heads and key heads

  // Rows of the head on this shard. A classifier has few labels, so every shard holds all of them.
  IndexRange head_rows(const ModelConfig& config) const {
    return config.is_classifier() ? IndexRange{0, static_cast<std::uint64_t>(config.head_outputs())} : vocab;
  }
};

// Throws Error(kConfig), which names the sizes that work.
Partition partition_for(const ModelConfig& config, int tp_rank, int tp_size);
// The part of one layer, where layers differ in size: KV heads that the shard's query heads use, and MLP columns. With
// linear attention `heads` are those of values, and `kv_heads` those of keys.
Partition layer_partition(const ModelConfig& config, Partition partition, std::int64_t layer);
// All tp_size in [1, limit] that partition_for() accepts.
std::vector<int> working_tp_sizes(const ModelConfig& config, int limit);

}  // namespace magister
