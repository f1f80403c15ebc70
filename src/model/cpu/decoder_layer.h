// One decoder layer of a Llama-like transformer on one shard: weights, the tiled fast path and its reference implementation.
// Legend: T packed tokens, S sequences, D hidden, H query heads and K KV heads of this shard, E head_dim, F MLP columns
// of this shard, R rows of a tile. Every function here is local; sums over the shards are the transformer's business.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/kv_pages.h"
#include "magister/parallel/thread_pool.h"
#include "model/layer_shape.h"

namespace magister {

struct LayerWeights {
  at::Tensor input_layernorm_D, post_attention_layernorm_D;  // f32, replicated
  Linear qkv_proj;                                           // [(H + 2K) E, D], sharded on rows
  Linear o_proj;                                             // [D, H E], sharded on columns: its product is partial
  Linear gate_up_proj;                                       // [2F, D], gate rows first, sharded
  Linear down_proj;                                          // [D, F], its product is partial
  at::Tensor q_norm_E, k_norm_E;                             // f32 or undefined
};

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
  at::Tensor attention_TA;                         // [T, H E]
  at::Tensor scratch;                              // [threads, scratch_floats]
  std::vector<BlockTable> sequences;               // [S]
  LayerBuffers(const PackedBatch& batch, std::vector<BlockTable> sequences, const LayerShape& shape, int num_threads);
  float* scratch_of(int thread_index);
};

// Pages for a batch without a cache: every layer overwrites them.
struct BatchPages {
  std::vector<std::int32_t> pages;  // 0, 1, 2, ...
  std::vector<BlockTable> sequences;
  explicit BatchPages(const PackedBatch& batch);
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages.size()); }
};

// Attention's queries in blocks, the expensive ones first: rows of one sequence and one head, or, where a sequence has a
// single row (decoding), that row's heads that share a KV head.
struct AttentionTile {
  std::int64_t row_begin = 0, row_end = 0;  // packed rows
  std::int64_t position = 0;                // of row_begin in its sequence
  std::int64_t sequence = 0, head = 0, num_heads = 1;
};
std::vector<AttentionTile> attention_tiles(const PackedBatch& batch, const LayerShape& shape);

// [Lq, Lk] bool: which keys (columns) the queries see that are the last Lq of Lk positions. window 0: none.
at::Tensor visible_keys(std::int64_t queries, std::int64_t keys, std::int64_t window, at::Device device);

// `pool`: the products of this call are shared by its threads; only outside ThreadPool::run.
class DecoderLayer {
 public:
  DecoderLayer(LayerShape shape, LayerWeights weights) : shape_(std::move(shape)), weights_(std::move(weights)) {}

  // Rows [begin, end): norm, q/k/v, q/k norm, rope -> buffers.qkv_TQ and the pages. hidden_TD is read only.
  void project_qkv(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                   const RopeRows& rope, KvPages& kv, LayerBuffers& buffers, int thread_index,
                   ThreadPool* pool = nullptr) const;
  // One tile of causal attention over everything that the pages hold of its sequence -> buffers.attention_TA.
  void attend(const AttentionTile& tile, const KvPages& kv, LayerBuffers& buffers, int thread_index) const;
  // Rows [begin, end): out (+)= attention_TA * o_proj^T. accumulate: out is the residual stream itself.
  void project_output(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, float* out_TD, bool accumulate,
                      ThreadPool* pool = nullptr) const;
  // Rows [begin, end): out (+)= mlp(norm(hidden)).
  void mlp(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers, int thread_index,
           float* out_TD, bool accumulate, ThreadPool* pool = nullptr) const;

  // Plain ATen reference implementations on whole batches, in the weights' type for products, autograd-friendly: [T, D] -> partial [T, D].
  // cos_TE2, sin_TE2: [T, E/2] f32.
  at::Tensor reference_attention(const at::Tensor& hidden_TD, const PackedBatch& batch, const at::Tensor& cos_TE2,
                                 const at::Tensor& sin_TE2) const;
  at::Tensor reference_mlp(const at::Tensor& hidden_TD) const;

  const LayerShape& shape() const { return shape_; }
  const LayerWeights& weights() const { return weights_; }

 private:
  LayerShape shape_;
  LayerWeights weights_;
};

}  // namespace magister
