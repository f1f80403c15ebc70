// Attention of a pass on a GPU. Sequences that begin in this pass are read where their projections stand, by flash attention over
// variable lengths; those that go on from a cache are read from its pages.
// Legend: T packed tokens, S sequences, H query and K KV heads of this shard, E head_dim, P pages, N keys of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/gpu/launch.h"
#include "magister/model/kv_pages.h"
#include "model/decoder_layer.h"

namespace magister::gpu {

// Sequences one after the other that are treated alike, in one call.
struct AttentionRun {
  std::int64_t first_row = 0, num_rows = 0;
  std::vector<std::int64_t> cu_queries, cu_keys;  // from 0, S + 1 each
  at::Tensor cu_queries_device, cu_keys_device;   // i32
  std::int64_t longest_queries = 0, longest_keys = 0;
  at::Tensor pages_N, places_N;  // i64, of every key of a cached run; undefined: the keys are the run's own rows
};

struct AttentionPlan {
  std::vector<AttentionRun> runs;
};

// slots: of each sequence, or empty without a cache.
AttentionPlan plan_attention(const PackedBatch& batch, const std::vector<SequenceSlots>& slots, at::Device device);

// qkv_TQ [T, (H + 2K) E], rotated; keys and values [P, K, 48, E] of the layer, undefined without a cache. -> [T, H E].
at::Tensor attend(const AttentionPlan& plan, const LayerShape& shape, const at::Tensor& qkv_TQ, const at::Tensor& keys,
                  const at::Tensor& values, const Queue& queue);

}  // namespace magister::gpu
