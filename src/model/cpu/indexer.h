// The lightning indexer of sparse latent attention on a CPU: which keys a query sees, see IndexerConfig. Every shard
// has all of it and the same input, so all shards choose the same keys. All functions are local.
// Legend: D hidden, L query_rank, I heads and E head_dim of the indexer, R rows of a tile.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "magister/model/cpu/matmul.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/layer_buffers.h"

namespace magister {

struct IndexerWeights {
  Linear q_proj;      // [I E, L], of the queries' short vector after its norm
  Linear k_proj;      // [E, D], of the block's input
  BlockNorms k_norm;  // a layer norm over E, as an input norm
  Linear head_proj;   // [I, D] f32, of the block's input: the weights of the heads
};

class Indexer {
 public:
  Indexer(const LatentConfig& latent, IndexerWeights weights)
      : config_(*latent.indexer), rope_dim_(latent.rope_dim), weights_(std::move(weights)) {}

  // Rows [begin, end): the keys, [R, E], and, where buffers.chosen_Tk is defined, the queries and the weights of their
  // heads into the buffers. short_RL: rows of `stride` numbers.
  void project(const float* input_RD, const float* short_RL, std::int64_t stride, std::int64_t begin, std::int64_t end,
               const RopeRows& rope, float* keys_RE, LayerBuffers& buffers, ThreadPool* pool) const;
  // The keys of packed row `row`, the token at `position` >= top_k of a sequence, into its row of buffers.chosen_Tk,
  // ascending. The pages hold the keys of all tokens up to it. Rows may be computed in any order, on any thread.
  void choose(std::int64_t row, std::int64_t position, const BlockTable& sequence, const KvPages& pages,
              LayerBuffers& buffers) const;

  const IndexerConfig& config() const { return config_; }
  const IndexerWeights& weights() const { return weights_; }

 private:
  IndexerConfig config_;
  std::int64_t rope_dim_;
  IndexerWeights weights_;
};

// Writes the positions of the k largest of n > k scores to out, ascending. Equal scores: the lower position first.
void choose_best(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out);

}  // namespace magister
