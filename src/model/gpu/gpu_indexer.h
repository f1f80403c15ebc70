// Latent attention whose keys an indexer chooses, on a GPU: every row, of prompts and of texts, meets the latents of
// its chosen keys, gathered out of pages or of the pass, in the space of latents. So a row's bits are the same however
// its text is cut. Every shard has the whole indexer and chooses the same keys.
// Source: transformers' DeepseekV32Indexer; IndexerConfig has the rule.
// Legend: as in gpu_latent.h; I heads and E head_dim of the indexer, k keys that it chooses.
#pragma once

#include "model/gpu/gpu_latent.h"
#include "model/gpu/index_kernels.h"

namespace magister::gpu {

// Rows that are scored and attend at a time: the memory for their scores and partial sums is bounded.
constexpr std::int64_t kSparseRows = 256;

// The keys of a pass's rows, i32 on the device. KeyPlaces has the meaning.
struct SparseRows {
  at::Tensor visible_T, seen_T;        // keys up to each token's own, and how many of them it sees
  at::Tensor table_SP, sequence_T;     // only with a cache
  at::Tensor past_T, prefix_T, own_T;  // only without one
  std::int64_t longest = 0;            // the most keys of a row
  at::Tensor chosen_Tk{};              // places of the keys that the last layer with an indexer chose
};
SparseRows sparse_rows(const PackedBatch& batch, const std::vector<BlockTable>& slots, std::int64_t top_k,
                       at::Device device);

// make: as for load_latent() and random_latent().
GpuIndexer load_indexer(WeightSource& source, std::int64_t layer, const GpuWeights& weights,
                        const std::function<GpuLinear(const Linear&)>& make);
GpuIndexer random_indexer(const GpuWeights& weights,
                          const std::function<GpuLinear(std::int64_t N, std::int64_t K, bool quantised)>& make);

// Attention of a pass -> [T, H V]. Writes latents and the indexer's keys to their slots. A layer with an indexer
// chooses keys; another one sees those in `sparse`.
at::Tensor sparse_attention(const GpuLayer& layer, SparseRows& sparse, const LatentRows& rows,
                            const LatentProduct& multiply, const Queue& queue);

// For plans: bytes of a token, and of the rows that are computed at a time, with as many keys.
std::uint64_t sparse_token_bytes(const LayerShape& shape, at::ScalarType dtype);
std::uint64_t sparse_block_bytes(const LayerShape& shape, std::int64_t keys, at::ScalarType dtype);

}  // namespace magister::gpu
