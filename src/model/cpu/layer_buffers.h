// Shared by the blocks of a forward pass: work buffers, rotary rows, and pages for a batch without a cache.
// Legend: T packed tokens, S sequences, D hidden, H query heads and K KV heads of this shard, E head_dim, F MLP columns
// of this shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"

namespace magister {

// Rotary rows of each packed token: pointers into the tables of the batch, [rotary_dim / 2] f32 each.
struct RopeRows {
  std::vector<const float*> cos, sin;  // [T]
};

// Work buffers of one forward pass, allocated once per batch. All f32, CPU.
struct LayerBuffers {
  static constexpr std::int64_t kTileRows = 256;   // 256 x 3072 x 4 B = 3 MB of gate_up per tile
  static constexpr std::int64_t kQueryBlock = 48;  // masked keys at the diagonal are wasted work: 24 per row on average
  static constexpr std::int64_t kKeyBlock = 480;   // scores take 48 x 480 x 4 B = 92 kB per thread
  static constexpr std::int64_t kLatentBlock = 144;  // keys of a block with latent attention, whose rows are wide
  static constexpr std::int64_t kDeltaRows = 64;     // rows of a piece of linear attention
  static constexpr std::int64_t kLatentRows = 48;    // most heads of a decoding tile with latent attention
  at::Tensor qkv_TQ;                                 // [T, (H + 2K) E]; with latent attention [T, H E], the queries
  // Latent attention where each sequence has one row (decoding): queries in the space of latents and their rotated
  // part, [T, H, rank + rope_dim]; attend() replaces them by sums of latents. Also where keys are chosen, whose tiles
  // are single rows. Else undefined: attend() keeps both.
  at::Tensor latent_THW;
  // Only if an indexer chooses keys for a row of the batch, that is if a sequence has more than its top_k = k: the keys
  // of each such row, ascending (i32; other rows are not written), which layers without an indexer take over. The
  // indexer's queries and the weights of its I heads.
  at::Tensor chosen_Tk, index_queries_TQ, index_weights_TI;
  at::Tensor squares_T2;    // [T, 2], sums of squares of q and of k; only if all_heads > 0
  at::Tensor attention_TA;  // [T, H value_dim]
  at::Tensor gate_TG;       // [T, gate numbers of H heads]; undefined where attention's outputs have no gate
  at::Tensor steps_TS;      // [T, 2H], products of strengths and decays; only with linear attention
  at::Tensor scratch;       // [threads, floats of a thread]
  // Only with experts, k per token: their numbers (i32, ascending), their weights, and their outputs, sorted by expert.
  at::Tensor experts_Tk, expert_weights_Tk;  // [T, k]
  at::Tensor expert_rows_ND;                 // [T k, D]
  std::vector<BlockTable> sequences;         // [S]
  RowKind kind;                              // of all rows of the batch
  // others: shapes of the model's layers that differ from `shape` in size.
  LayerBuffers(const PackedBatch& batch, std::vector<BlockTable> sequences, const LayerShape& shape, int num_threads,
               std::span<const LayerShape> others = {});
  float* scratch_of(int thread_index);
  // Input rows of one expert, stored after the thread's scratch: [kTileRows, D]. Only with experts.
  float* gathered_of(int thread_index);

 private:
  std::int64_t gathered_offset_ = 0;
};

// Numbers of a thread's scratch for linear attention, see Attention::run_delta(); 0 for other layers.
std::int64_t delta_scratch(const LayerShape& shape);

// Pages of one layer of this shape, with everything zero.
KvPages pages_for(const LayerShape& shape, std::int64_t num_pages);

// Places for the states of linear attention in one layer of this shape; without tensors where it has other attention.
DeltaStates states_for(const LayerShape& shape, std::int64_t num_texts);

// Pages for a batch without a cache; every layer overwrites them.
struct BatchPages {
  std::vector<std::int32_t> pages;  // 0, 1, 2, ...
  std::vector<BlockTable> sequences;
  explicit BatchPages(const PackedBatch& batch);
  BatchPages(const BatchPages&) = delete;  // `sequences` points into it
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages.size()); }

 private:
  // Page tables of sequences that share a prefix: its pages, then their own.
  std::vector<std::vector<std::int32_t>> joined_;
};

}  // namespace magister
