// What the blocks of a forward pass share: work buffers, rotary rows, and pages for a batch without a cache.
// Legend: T packed tokens, S sequences, D hidden, H query heads and K KV heads of this shard, E head_dim, F MLP columns
// of this shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"

namespace magister {

// Rotary rows per packed token: pointers into tables that the transformer keeps for the batch. [E/2] f32 each.
struct RopeRows {
  std::vector<const float*> cos, sin;  // [T]
};

// Work buffers of one forward pass, allocated once a batch. All f32 CPU.
struct LayerBuffers {
  static constexpr std::int64_t kTileRows = 256;   // 256 x 3072 x 4 B = 3 MB of gate_up a tile
  static constexpr std::int64_t kQueryBlock = 48;  // masked keys of the diagonal are wasted: 24 a row on average
  static constexpr std::int64_t kKeyBlock = 480;   // scores 48 x 480 x 4 B = 92 kB a thread
  at::Tensor qkv_TQ;                               // [T, (H + 2K) E]
  at::Tensor squares_T2;                           // sums over q and over k, of shapes with all_heads
  at::Tensor attention_TA;                         // [T, H E]
  at::Tensor scratch;                              // [threads, scratch_floats]
  // Of models with experts, k to a token: which, ascending (i32), their weights, and what they give, sorted by expert.
  at::Tensor experts_Tk, expert_weights_Tk;  // [T, k]
  at::Tensor expert_rows_ND;                 // [T k, D]
  std::vector<BlockTable> sequences;         // [S]
  LayerBuffers(const PackedBatch& batch, std::vector<BlockTable> sequences, const LayerShape& shape, int num_threads);
  float* scratch_of(int thread_index);
  // Rows of a tile that go to one expert, behind its scratch: [kTileRows, D]. Of models with experts.
  float* gathered_of(int thread_index);

 private:
  std::int64_t gathered_offset_ = 0;
};

// Pages for a batch without a cache: every layer overwrites them.
struct BatchPages {
  std::vector<std::int32_t> pages;  // 0, 1, 2, ...
  std::vector<BlockTable> sequences;
  explicit BatchPages(const PackedBatch& batch);
  BatchPages(const BatchPages&) = delete;  // sequences point into it
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages.size()); }

 private:
  std::vector<std::vector<std::int32_t>> joined_;  // pages of a prefix, then a sequence's own
};

}  // namespace magister
