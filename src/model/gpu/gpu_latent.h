// Latent attention (MLA) on a GPU. Prompts and passes without a cache make keys and values of every head from the
// latents, and attend as other models do. Rows that decode stay in the space of latents: queries are multiplied by the
// keys' second product, and sums of latents by the values'. Pages hold a token's latent and rotated key alone.
// Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; LatentConfig has the rules.
// Legend: T packed tokens, R rows that decode, H heads of this shard, L query_rank, C rank of the latent, N nope_dim, V
// value_dim, E head_dim, W width of a token in pages, X numbers of a padded head, A numbers of qkv_proj, U those of all
// heads' keys and values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/kv_pages.h"
#include "magister/model/weights.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// The layer with keys and values of each head, as ordinary attention reads them: heads of X numbers, the greater of E
// and V rounded up to a multiple of eight. Other numbers are zeros.
LayerShape expanded_shape(const LayerShape& shape);

// True if the kernels that attend among latents support the model. All shards return the same.
bool latent_kernels_take(const ModelConfig& config, at::ScalarType activations);
// True if rows that decode are apart from prompts, by these kernels. With an indexer all rows are alike.
bool absorbs_latents(const ModelConfig& config, at::ScalarType activations);

// make: turns a product into one on the device, as for the layer's other products.
GpuLatent load_latent(WeightSource& source, std::int64_t layer, const LayerShape& shape, const GpuWeights& weights,
                      const std::function<GpuLinear(const Linear&)>& make);
// make: [outputs, inputs], quantised or not.
GpuLatent random_latent(const LayerShape& shape, const GpuWeights& weights,
                        const std::function<GpuLinear(std::int64_t N, std::int64_t K, bool quantised)>& make);
// Outputs of qkv_proj: the queries' short vector, or the queries; the latent; the key.
std::int64_t short_numbers(const LayerShape& shape);
// Bytes of weights that are no products of GpuLayer::products().
std::uint64_t other_latent_bytes(const GpuLatent& latent);

// The part of a pass that latent attention reads.
struct LatentRows {
  at::Tensor short_TA;                  // output of qkv_proj
  at::Tensor cos_PR2, sin_PR2, rows_T;  // rotary tables, and each token's row in them
  at::Tensor pages = {}, slots_T = {};  // [P, 1, 48, W], i64 [T]; undefined without a cache
  // Only with an indexer: the block's normed input, and the pages of the indexer's keys [P, 1, 48, .].
  at::Tensor input_TD = {}, index_pages = {};
};
using LatentProduct = std::function<at::Tensor(const GpuLinear&, const at::Tensor& rows)>;

// Attention of a pass whose rows are those of the plan -> [T, H V]. Writes the rows to their slots.
at::Tensor attend_latents(const GpuLayer& layer, const AttentionPlan& plan, const LatentRows& rows,
                          const LatentProduct& multiply, const Queue& queue);

// The keys of rows that decode, i32: pages of each row [R, .], the row's line there, and the number of its keys.
struct LatentKeys {
  at::Tensor table_RP{}, sequence_R{}, visible_R{};
  std::int64_t chunks = 0;    // of LatentArguments
  at::Tensor places_Rk = {};  // instead of pages: places of chosen keys
  bool defined() const { return table_RP.defined(); }
};
// For a batch of single rows that all decode.
LatentKeys latent_keys(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device);

// Work memory of rows that decode: bf16, and f32 for partial sums.
struct LatentPlaces {
  at::Tensor queries_RL, tokens_RW, q_RQ, q_RHW, sums_RHC;  // without queries_RL and q_RQ where queries are one product

  LatentPlaces() = default;
  LatentPlaces(const LayerShape& shape, std::int64_t rows, at::Device device);
  LatentPlaces first(std::int64_t rows) const;
  std::uint64_t num_bytes() const;
  static std::int64_t bytes_of_row(const LayerShape& shape);
};
// f32 numbers of partial sums.
std::int64_t latent_scratch(std::int64_t rows, const LayerShape& shape, std::int64_t chunks);

// Norms of the short vectors and rotation of the key, of any rows; then, for rows in bf16 with their queries in q_RQ or
// in the first columns of short_TA, attention among latents -> out_RV [R, H V]. queries_RL: undefined where queries are
// one product. These allocate nothing, so CUDA graphs can hold them.
void queue_short_vectors(const GpuLayer& layer, const LatentRows& rows, const at::Tensor& queries_RL,
                         const at::Tensor& tokens_RW, const Queue& queue);
void queue_latent_attention(const GpuLayer& layer, const LatentRows& rows, const LatentKeys& keys,
                            const LatentPlaces& places, const at::Tensor& partial, const at::Tensor& out_RV,
                            const Queue& queue);
// All of it, with memory of its own -> [R, H V].
at::Tensor decode_latents(const GpuLayer& layer, const LatentKeys& keys, const LatentRows& rows,
                          const LatentProduct& multiply, const Queue& queue);

// The queries [T, H E] with their last numbers rotated -> out_THX [T, H, X]: whole, filled with zeros; or these numbers
// alone, from number C on.
void turn_queries(const LayerShape& shape, const LatentRows& rows, const at::Tensor& q_TQ, const at::Tensor& out_THX,
                  bool whole, const Queue& queue);

// Attention of a pass: decode_latents() where keys are defined, else attend_latents().
at::Tensor latent_attention(const GpuLayer& layer, const AttentionPlan& plan, const LatentKeys& keys,
                            const LatentRows& rows, const LatentProduct& multiply, const Queue& queue);

// For plans: most numbers of a token in a pass, from its short vectors to attention's outputs; numbers of a key that is
// gathered out of pages; and bytes of `rows` rows that decode outside GpuDecoder.
std::int64_t latent_pass_numbers(const LayerShape& shape);
std::int64_t latent_gathered_numbers(const LayerShape& shape);
std::uint64_t latent_decoding_bytes(const LayerShape& shape, std::int64_t rows, std::int64_t sequence_tokens);

}  // namespace magister::gpu
