// State of one forward pass of CpuModel, and the division of its rows into tiles.
// Legend: T packed tokens, D hidden, N layers, P numbers of a vector by layer, A vectors of a stream, F MLP columns of
// this shard.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/attention.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/cpu_model.h"

namespace magister {

// Calls body(begin, end, thread, pool) for the fixed row tiles of T tokens. Tiles are even: each reads all weights. The
// threads take a tile each, or, if there are few rows, share the products of one tile after the other.
template <typename Body>
void for_row_tiles(ThreadPool& pool, std::int64_t T, const Body& body) {
  const std::int64_t most = rows_of_tile(), tiles = std::max<std::int64_t>((T + most - 1) / most, 1),
                     rows = (T + tiles - 1) / tiles;
  const auto run = [&](std::int64_t tile, int thread, ThreadPool* shared) {
    body(tile * rows, std::min((tile + 1) * rows, T), thread, shared);
  };
  if (T > LayerBuffers::kTileRows)
    return pool.run(tiles, [&](std::int64_t tile, int thread) { run(tile, thread, nullptr); });
  for (std::int64_t tile = 0; tile < tiles; ++tile) run(tile, 0, &pool);
}

// State of one forward pass.
struct CpuModel::Pass {
  const PackedBatch& batch;
  RopeTables tables;
  LayerBuffers buffers;
  // For layers whose heads share keys in the groups of the first layer, and for the others.
  std::vector<AttentionTile> tiles, other_tiles;
  // True for a single shard without output norms or parallel blocks: products add to the residual stream directly, and
  // partial_TD is hidden_TD.
  bool adds;
  at::Tensor hidden_TD, partial_TD;  // f32
  at::Tensor dense_TD{};             // f32: output of the MLP beside experts; else undefined
  at::Tensor vectors_TNP{};          // f32: the tokens' vectors by layer; undefined: the model has none
  at::Tensor streams_TAD{};          // f32: all vectors of the stream with AltUp, else undefined
  at::Tensor gates_RF2{};            // f32: gates and ups of some rows, while a sum over shards is made; else undefined
  float* streams(std::int64_t row) { return streams_TAD.data_ptr<float>() + row * streams_TAD.stride(0); }
  std::int64_t num_rows() const { return hidden_TD.size(0); }
  float* hidden() { return hidden_TD.data_ptr<float>(); }
  float* partial() { return partial_TD.data_ptr<float>(); }

  // Leaves the rows that the batch reads, once attention has the outputs of its last layer, which may be less wide than
  // those of others.
  void keep_read_rows(const LayerShape& last) {
    const auto narrow = [this](at::Tensor& of_rows, std::int64_t width) {
      const std::int64_t rows = num_rows();
      of_rows = of_rows.view({-1}).narrow(0, 0, rows * width).view({rows, width});
    };
    narrow(buffers.attention_TA, last.heads * last.value_dim());
    if (last.gate_numbers > 0) narrow(buffers.gate_TG, last.gate_numbers);
    const at::Tensor rows_R = at::tensor(*batch.read_rows, at::kLong);
    for (at::Tensor* of_rows :
         {&hidden_TD, &vectors_TNP, &streams_TAD, &buffers.attention_TA, &buffers.gate_TG, &buffers.latent_THW}) {
      if (of_rows->defined()) *of_rows = of_rows->index_select(0, rows_R);
    }
    partial_TD = adds ? hidden_TD : at::empty_like(hidden_TD);
    dense_TD.reset();
  }

  // factor: of the sum.
  void join_rows(const BlockNorms& norms, float eps, std::int64_t begin, std::int64_t end, float factor = 1) {
    const std::int64_t D = hidden_TD.size(1);
    if (!adds) add_block_output(norms, eps, partial() + begin * D, hidden() + begin * D, end - begin, D);
    if (factor != 1) cpu_kernels().scale(hidden() + begin * D, factor, (end - begin) * D);
  }
};

}  // namespace magister
