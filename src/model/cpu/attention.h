// Attention: the first block of a decoder layer on one shard: its weights, the tiled fast path and its reference
// implementation. All functions are local; reference() communicates only through `sum`. The model sums partial outputs
// over the shards.
// Legend: T packed tokens, D hidden, H query heads and K KV heads of this shard, E head_dim, R rows of a tile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "magister/model/cpu/matmul.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/delta_weights.h"
#include "model/cpu/indexer.h"
#include "model/cpu/layer_buffers.h"

namespace magister {

// The second products of latent attention. A head's key without rotation is key_up times the latent: a query times
// key_up meets latents directly. Its values are value_up times the latent: sums of latents are multiplied once.
struct LatentWeights {
  Linear q_up_proj;              // [H E, query_rank]; undefined where queries are one product
  std::vector<Linear> key_up;    // [rank, nope_dim] of each head: transposed, f32
  std::vector<Linear> value_up;  // [value_dim, rank] of each head, f32
};

struct AttentionWeights {
  BlockNorms norms;
  // [(H + 2K) E, D], sharded on rows, where values are as wide as keys; without v, or k and v, where the shape says so
  Linear qkv_proj;
  Linear o_proj;                            // [D, H value_dim], sharded on columns: the product is partial
  at::Tensor q_norm, k_norm;                // f32 [E], or [H E] and [K E] for norms over all heads; or undefined
  at::Tensor sinks{};                       // f32 [H], one learned score per head without a value; or undefined
  at::Tensor q_norm_bias{}, k_norm_bias{};  // f32 [E], where the norms of q and k are layer norms; or undefined
  // Latent attention: qkv_proj, q_norm and k_norm are then those of the short vectors, see WeightSource.
  std::optional<LatentWeights> latent{};
  Linear gate{};        // [gate numbers of the heads, D], sharded on rows; undefined where outputs have no gate
  at::Tensor v_norm{};  // f32 [E], ones: each head of v is normed; or undefined
  std::optional<Indexer> indexer{};  // of a layer that chooses keys
  // Linear attention: qkv_proj is that of its queries, keys and values, `gate` that of the heads' gate.
  std::optional<DeltaWeights> delta{};
};

// A tile of attention: rows of one sequence for one head or, where a sequence has a single row (decoding) or an indexer
// chooses the row's keys, one row for the heads that share a KV head. attention_tiles() returns the most expensive
// tiles first. read_rows: the packed rows whose outputs are wanted, ascending; null: all.
struct AttentionTile {
  std::int64_t row_begin = 0, row_end = 0;  // packed rows
  std::int64_t position = 0;                // position of row_begin in its sequence
  std::int64_t sequence = 0, head = 0, num_heads = 1;
};
std::vector<AttentionTile> attention_tiles(const PackedBatch& batch, const LayerShape& shape,
                                           const std::vector<std::int64_t>* read_rows = nullptr);

// Keys after their norm and rotation, and values, of a whole batch: [T, K, E] f32. With an indexer, by sequence, the
// keys that each query sees: [L, L] bool, undefined where it sees all earlier ones.
struct KeysAndValues {
  at::Tensor k_TKE, v_TKE;
  std::vector<at::Tensor> visible_LL{};
};

// `pool`: its threads share the products of the call; pass it only outside ThreadPool::run.
class Attention {
 public:
  Attention(LayerShape shape, AttentionWeights weights) : shape_(std::move(shape)), weights_(std::move(weights)) {}

  // Rows [begin, end): norm, q/k/v, q/k norm and rope, into buffers.qkv_TQ and the pages. hidden_TD is only read. With
  // all_heads > 0 it computes only q/k/v and buffers.squares_T2; the model sums the squares over the shards and then
  // calls place_heads(), which does the rest.
  void project_qkv(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                   const RopeRows& rope, KvPages& kv, LayerBuffers& buffers, int thread_index,
                   ThreadPool* pool = nullptr) const;
  void place_heads(const PackedBatch& batch, std::int64_t begin, std::int64_t end, const RopeRows& rope, KvPages& kv,
                   LayerBuffers& buffers) const;
  // In a layer with an indexer, once the pages have the keys of all rows: chooses the keys of the rows that see some.
  void choose_keys(const PackedBatch& batch, const KvPages& kv, LayerBuffers& buffers, ThreadPool& pool) const;
  // Linear attention of one key head and its value heads over the rows of one sequence, into buffers.attention_TA.
  // states: those of the layer in a cache, which go on from the sequence's earlier rows; null: it begins here.
  void run_delta(const PackedBatch& batch, std::int64_t sequence, std::int64_t key_head, DeltaStates* states,
                 LayerBuffers& buffers, int thread_index) const;
  // Rows [begin, end) of its outputs: the heads' norm, and their gate.
  void finish_delta(std::int64_t begin, std::int64_t end, LayerBuffers& buffers) const;
  // Causal attention of one tile over all keys of its sequence in the pages, into buffers.attention_TA.
  void attend(const AttentionTile& tile, const KvPages& kv, LayerBuffers& buffers, int thread_index) const;
  // Rows [begin, end): out (+)= attention_TA * o_proj^T. accumulate: out is the residual stream.
  void project_output(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, float* out_TD, bool accumulate,
                      ThreadPool* pool = nullptr) const;

  // Plain ATen reference for a whole batch: [T, D] -> partial [T, D], before the norm on the block's output. Products
  // are computed in the weights' dtype; autograd can follow it. sum: sums a tensor over the shards in place; empty:
  // this shard's numbers are used alone. cos_TE2, sin_TE2: [T, rotary_dim / 2] f32, of the shape's rope_table. kv:
  // receives the layer's keys and values, or holds those that a layer without its own reads, which needs it. The
  // indexer's choice is made where kv has none.
  at::Tensor reference(const at::Tensor& hidden_TD, const PackedBatch& batch, const at::Tensor& cos_TE2,
                       const at::Tensor& sin_TE2, const std::function<void(at::Tensor&)>& sum = {},
                       KeysAndValues* kv = nullptr) const;

  const LayerShape& shape() const { return shape_; }
  const AttentionWeights& weights() const { return weights_; }

 private:
  // The same steps for latent attention (latent_attention.cpp, blocks_reference.cpp).
  void project_latent(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                      const RopeRows& rope, KvPages& kv, LayerBuffers& buffers, int thread_index,
                      ThreadPool* pool) const;
  void project_delta(const float* input_RD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                     ThreadPool* pool) const;
  void attend_latent(const AttentionTile& tile, const KvPages& kv, LayerBuffers& buffers, int thread_index) const;
  // Sums of latents become the heads' values, where attend_latent() has left them.
  void expand_values(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, ThreadPool* pool) const;
  at::Tensor latent_reference(const at::Tensor& hidden_TD, const PackedBatch& batch, const at::Tensor& cos_TE2,
                              const at::Tensor& sin_TE2, KeysAndValues* kv) const;
  at::Tensor delta_reference(const at::Tensor& hidden_TD, const PackedBatch& batch) const;
  // Rows [begin, end) of attention_TA times the function of their gate.
  void apply_gate(std::int64_t begin, std::int64_t end, LayerBuffers& buffers) const;
  void norm_heads(float* row, float* keys, const float* squares) const;
  // Scales the scores of one query and `count` keys from first_key on, and adds ALiBi's terms. head: of this shard.
  void add_alibi(std::int64_t head, std::int64_t query, std::int64_t first_key, float* scores, std::int64_t count,
                 float scale) const;

  LayerShape shape_;
  AttentionWeights weights_;
};

}  // namespace magister
