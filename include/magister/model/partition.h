// Partition: which heads, MLP columns and vocabulary rows a shard holds. Divided unevenly where they do not divide:
// SmolLM2's 9 heads and 3 KV heads over 2 shards are 6 + 3 heads on 2 + 1 KV heads. Whole KV heads with all their query
// heads stay together; when there are fewer KV heads than shards, KV heads are copied and query heads divided.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/model_config.h"

namespace magister {

struct Partition {
  IndexRange heads;     // query heads of this shard
  IndexRange kv_heads;  // KV heads that they use
  IndexRange mlp;       // columns of the MLP's middle
  IndexRange expert;    // of every expert's; empty where there are none
  IndexRange vocab;     // rows of embedding and head

  // A classifier's few labels stand on every shard.
  IndexRange head_rows(const ModelConfig& config) const {
    return config.is_classifier() ? IndexRange{0, static_cast<std::uint64_t>(config.head_outputs())} : vocab;
  }
};

// Throws Error(kConfig) with the group sizes that do work.
Partition partition_for(const ModelConfig& config, int tp_rank, int tp_size);
// All tp_size in [1, limit] that partition_for accepts.
std::vector<int> working_tp_sizes(const ModelConfig& config, int limit);

}  // namespace magister
