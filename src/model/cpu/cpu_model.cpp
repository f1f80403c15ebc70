// The forward pass of one shard on a CPU, and the same in plain ATen code.
#include "model/cpu/cpu_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/rope.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/cpu_pass.h"
#include "model/cpu/row_kinds.h"
#include "model/learned_positions.h"

namespace magister {
namespace {

// Writes the embeddings that this shard holds, times `scale`, and zeros for all other tokens. A sum over the shards
// completes them.
void embed_rows(const Linear& embedding, IndexRange vocab, float scale, const PackedBatch& batch, std::int64_t begin,
                std::int64_t end, float* hidden_TD) {
  const std::int64_t D = embedding.in_features();
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t t = begin; t < end; ++t) {
    float* to = hidden_TD + t * D;
    const auto id = static_cast<std::uint64_t>(ids[t]);
    if (id >= vocab.begin && id < vocab.end) {
      embedding.copy_row(static_cast<std::int64_t>(id - vocab.begin), to);
      if (scale != 1.0f) cpu_kernels().scale(to, scale, D);
    } else {
      std::memset(to, 0, static_cast<std::size_t>(D) * sizeof(float));
    }
  }
}

// Adds the learned position vectors. check_positions() has refused positions that the model has not learned.
void add_positions(const Linear& positions, std::int64_t skipped_rows, const PackedBatch& batch, std::int64_t begin,
                   std::int64_t end, float* hidden_TD) {
  const std::int64_t D = positions.in_features();
  std::vector<float> row_D(static_cast<std::size_t>(D));
  for (std::int64_t t = begin; t < end; ++t) {
    positions.copy_row(skipped_rows + batch.positions_T.const_data_ptr<std::int32_t>()[t], row_D.data());
    for (std::int64_t d = 0; d < D; ++d) hidden_TD[t * D + d] += row_D[static_cast<std::size_t>(d)];
  }
}

}  // namespace

at::Tensor CpuModel::forward(const PackedBatch& batch, const std::function<bool()>& should_stop) {
  const BatchPages pages(batch);
  std::vector<KvPages> kv = pass_pages(pages.num_pages());
  return run_layers(batch, pages.sequences, kv, weights_.pass_places, {}, should_stop);
}

// Pages that all layers of a kind use in turn. A layer that others share keys with is the last of its kind to write.
std::vector<KvPages> CpuModel::pass_pages(std::int64_t num_pages) const {
  std::vector<KvPages> kv;
  for (std::size_t i = 0; i < weights_.decoder.size(); ++i) {
    if (weights_.pass_places[i] == kv.size()) kv.push_back(pages_for(weights_.decoder[i].shape(), num_pages));
  }
  return kv;
}

at::Tensor CpuModel::forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) {
  const auto run = [&](const PackedBatch& rows, const std::vector<BlockTable>& of_rows) {
    return run_layers(rows, of_rows, cache.layers, weights_.cache_places, cache.states, {});
  };
  const auto texts = std::count(batch.is_decode_S.begin(), batch.is_decode_S.end(), std::uint8_t{1});
  if (!weights_.has_codes || texts == 0 || texts == batch.num_sequences()) return run(batch, slots);
  const std::int64_t rows = batch.read_rows ? static_cast<std::int64_t>(batch.read_rows->size()) : batch.num_tokens();
  at::Tensor hidden_RD = at::empty({rows, weights_.config.hidden_size}, at::TensorOptions().dtype(at::kFloat));
  for (const PartOfBatch& part : parts_by_kind(batch, slots))
    hidden_RD.index_copy_(0, part.rows_R, run(part.batch, part.slots));
  return hidden_RD;
}

KvCache CpuModel::make_cache(std::int64_t num_pages, std::int64_t num_texts) const {
  KvCache cache;
  cache.num_pages = num_pages;
  for (const DecoderLayer& layer : weights_.decoder) {
    if (layer.shape().has_own_kv) cache.layers.push_back(pages_for(layer.shape(), num_pages));
    if (weights_.config.delta) cache.states.push_back(states_for(layer.shape(), num_texts));
  }
  return cache;
}

void CpuModel::run_attention(const DecoderLayer& layer, Pass& pass, KvPages& pages, DeltaStates* states) {
  const std::int64_t T = pass.num_rows();
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.attention.project_qkv(pass.hidden(), pass.batch, begin, end, pass.tables.rows[layer.shape().rope_table],
                                pages, pass.buffers, thread, shared);
    if (!layer.laurel.is_on()) return;
    const std::int64_t D = pass.hidden_TD.size(1);
    layer.laurel.run(layer.attention.weights().norms, pass.hidden() + begin * D, end - begin, D,
                     layer.shape().rms_norm_eps, pass.buffers.scratch_of(thread), shared);
  });
  if (layer.shape().all_heads > 0) {  // the norms of q and k are over the heads of all shards
    group_.all_reduce_sum(pass.buffers.squares_T2);
    for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
      layer.attention.place_heads(pass.batch, begin, end, pass.tables.rows[layer.shape().rope_table], pages,
                                  pass.buffers);
    });
  }
  if (layer.shape().delta) {
    const std::int64_t K = layer.shape().kv_heads;
    pool_.run(pass.batch.num_sequences() * K, [&](std::int64_t task, int thread) {
      layer.attention.run_delta(pass.batch, task / K, task % K, states, pass.buffers, thread);
    });
    return;
  }
  layer.attention.choose_keys(pass.batch, pages, pass.buffers, pool_);
  const bool as_first = layer.shape().kv_of_head == weights_.decoder.front().shape().kv_of_head;
  const std::vector<AttentionTile>& tiles = as_first ? pass.tiles : pass.other_tiles;
  pool_.run(static_cast<std::int64_t>(tiles.size()), [&](std::int64_t tile, int thread) {
    layer.attention.attend(tiles[static_cast<std::size_t>(tile)], pages, pass.buffers, thread);
  });
}

void CpuModel::run_blocks(const DecoderLayer& layer, Pass& pass) {
  const bool alone = group_.tp_size() == 1, parallel = weights_.config.parallel_residual;
  const std::int64_t T = pass.num_rows();
  const float eps = layer.shape().rms_norm_eps;
  const BlockNorms &attention_norms = layer.attention.weights().norms, &mlp_norms = layer.mlp_norms();
  // Sums the partial products over the shards and adds them to the residual stream.
  const auto join_sum = [&](const BlockNorms& norms, float factor) {
    group_.all_reduce_sum(pass.partial_TD);
    for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
      pass.join_rows(norms, eps, begin, end, factor);
    });
  };
  const float attention_factor = layer.laurel.is_on() ? Laurel::kFactor : 1.0f;
  const auto run_mlp = [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.feed_forward()->run(pass.hidden(), begin, end, pass.buffers, thread, pass.partial(), pass.adds || parallel,
                              shared);
  };
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.attention.project_output(begin, end, pass.buffers, pass.partial(), pass.adds, shared);
    if (!alone && !parallel) return;
    if (!parallel) pass.join_rows(attention_norms, eps, begin, end, attention_factor);
    if (layer.experts()) return;          // see below
    run_mlp(begin, end, thread, shared);  // with parallel blocks it adds to attention's output
    if (alone) pass.join_rows(mlp_norms, eps, begin, end);
  });
  if (alone && !layer.experts()) return;
  // Experts multiply their tokens from all tiles at once; parallel ones read what attention has read.
  if (layer.experts() && parallel) layer.experts()->run(pass.hidden(), T, pass.buffers, pass.partial(), true, pool_);
  if (!alone) join_sum(attention_norms, attention_factor);
  if (parallel && (!alone || !layer.experts())) return;
  if (layer.beside) return run_beside(layer, pass);
  if (layer.experts()) {
    if (!parallel) layer.experts()->run(pass.hidden(), T, pass.buffers, pass.partial(), pass.adds, pool_);
  } else if (layer.feed_forward()->thins_gates()) {
    run_thinned(*layer.feed_forward(), pass);
  } else {
    for_row_tiles(pool_, T, run_mlp);
  }
  if (!alone) return join_sum(mlp_norms, 1.0f);
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
    pass.join_rows(mlp_norms, eps, begin, end);
  });
}

// Both read the stream, each through a norm of its own.
void CpuModel::run_beside(const DecoderLayer& layer, Pass& pass) {
  const std::int64_t T = pass.num_rows(), D = pass.hidden_TD.size(1);
  const float eps = layer.shape().rms_norm_eps;
  if (!pass.dense_TD.defined()) pass.dense_TD = at::empty_like(pass.hidden_TD);
  float* dense_TD = pass.dense_TD.data_ptr<float>();
  layer.experts()->run(pass.hidden(), T, pass.buffers, pass.partial(), false, pool_);
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.beside->mlp.run(pass.hidden(), begin, end, pass.buffers, thread, dense_TD, false, shared);
  });
  if (group_.tp_size() > 1) {
    group_.all_reduce_sum(pass.partial_TD);
    group_.all_reduce_sum(pass.dense_TD);
  }
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
    const std::int64_t rows = end - begin;
    float *dense = dense_TD + begin * D, *experts = pass.partial() + begin * D;
    cpu_kernels().rms_norm(dense, D, layer.beside->output_D.const_data_ptr<float>(), eps, dense, D, rows, D);
    add_block_output({{}, layer.beside->experts_output_D}, eps, experts, dense, rows, D);
    std::copy(dense, dense + rows * D, experts);
    pass.join_rows(layer.mlp_norms(), eps, begin, end);
  });
}

at::Tensor CpuModel::run_layers(const PackedBatch& batch, const std::vector<BlockTable>& slots,
                                std::vector<KvPages>& kv, const std::vector<std::size_t>& places,
                                std::span<DeltaStates> states, const std::function<bool()>& should_stop,
                                FirstNotFinite* watch) {
  const std::int64_t T = batch.num_tokens(), D = weights_.config.hidden_size;
  check_positions(weights_.config, batch);
  at::Tensor hidden_TD = at::empty({T, D}, at::TensorOptions().dtype(at::kFloat));
  if (T == 0) return hidden_TD;
  const LayerShape& shape = weights_.decoder.front().shape();
  const bool adds = group_.tp_size() == 1 && weights_.config.norm_placement == NormPlacement::kInput &&
                    !weights_.config.parallel_residual && !weights_.config.sparse_norm;
  Pass pass{batch,
            weights_.rope_tables(batch),
            LayerBuffers(batch, slots, shape, pool_.num_threads(), weights_.other_shapes),
            attention_tiles(batch, shape),
            {},
            adds,
            hidden_TD,
            adds ? hidden_TD : at::empty_like(hidden_TD)};
  for (const LayerShape& other : weights_.other_shapes) {
    if (other.kv_of_head != shape.kv_of_head && pass.other_tiles.empty())
      pass.other_tiles = attention_tiles(batch, other);
  }
  const float scale = weights_.embedding_scale();
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
    embed_rows(weights_.embedding, weights_.partition.vocab, scale, batch, begin, end, pass.hidden());
    if (weights_.positions.weight_NK.defined())
      add_positions(weights_.positions, weights_.config.skipped_position_rows, batch, begin, end, pass.hidden());
  });
  if (group_.tp_size() > 1) group_.all_reduce_sum(pass.hidden_TD);
  const auto norm_rows = [&](const BlockNorms& norms) {
    for_row_tiles(pool_, pass.num_rows(), [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
      float* rows = pass.hidden() + begin * D;
      block_input(norms, shape.rms_norm_eps, rows, rows, end - begin, D);
    });
  };
  if (weights_.embedding_norm.input_D.defined()) norm_rows(weights_.embedding_norm);
  if (watch != nullptr) watch->look(-1, hidden_TD);
  compute_per_layer(pass);
  begin_stream(pass);
  for (std::size_t i = 0; i < weights_.decoder.size(); ++i) {
    if (should_stop && should_stop()) return {};
    const DecoderLayer& layer = weights_.decoder[i];
    const bool narrows = batch.read_rows && i + 1 == weights_.decoder.size();
    if (narrows) pass.tiles = pass.other_tiles = attention_tiles(batch, layer.shape(), &*batch.read_rows);
    predict_stream(layer, pass);
    run_attention(layer, pass, kv[places[i]], states.empty() ? nullptr : &states[i]);
    if (narrows) pass.keep_read_rows(layer.shape());
    if (pass.num_rows() == 0) return pass.hidden_TD;
    run_blocks(layer, pass);
    run_tail(layer, i, pass);
    if (watch != nullptr) watch->look(static_cast<std::int64_t>(i), pass.hidden_TD);
  }
  end_stream(pass);
  norm_rows(weights_.norm);
  if (watch != nullptr) watch->look(weights_.config.num_hidden_layers, pass.hidden_TD);
  return pass.hidden_TD;
}

std::string CpuModel::first_not_finite(const PackedBatch& batch) {
  const BatchPages pages(batch);
  std::vector<KvPages> kv = pass_pages(pages.num_pages());
  FirstNotFinite first(weights_.config.num_hidden_layers);
  run_layers(batch, pages.sequences, kv, weights_.pass_places, {}, {}, &first);
  return first.place();
}

at::Tensor CpuModel::reference_beside(const DecoderLayer& layer, const at::Tensor& hidden_TD) const {
  const double eps = weights_.config.rms_norm_eps;
  at::Tensor dense_TD = layer.beside->mlp.reference(hidden_TD), experts_TD = layer.experts()->reference(hidden_TD);
  for (at::Tensor* part : {&dense_TD, &experts_TD}) {
    if (group_.tp_size() > 1) group_.all_reduce_sum(*part);
  }
  return reference_block_output({{}, layer.beside->output_D}, dense_TD, eps) +
         reference_block_output({{}, layer.beside->experts_output_D}, experts_TD, eps);
}

at::Tensor CpuModel::forward_reference(const PackedBatch& batch) {
  ProcessGroup& group = group_;
  const IndexRange vocab = weights_.partition.vocab;
  const at::Tensor ids_T = batch.token_ids_T.to(at::kLong) - static_cast<std::int64_t>(vocab.begin);
  const at::Tensor mine_T = (ids_T >= 0) & (ids_T < static_cast<std::int64_t>(vocab.size()));
  at::Tensor hidden_TD =
      at::embedding(weights_.embedding.plain_weight(), ids_T.masked_fill(mine_T.logical_not(), 0)).to(at::kFloat);
  hidden_TD = hidden_TD * mine_T.unsqueeze(1) * weights_.embedding_scale();
  check_positions(weights_.config, batch);
  if (weights_.positions.weight_NK.defined())
    hidden_TD = hidden_TD + at::embedding(weights_.positions.weight_NK,
                                          batch.positions_T.to(at::kLong) + weights_.config.skipped_position_rows)
                                .to(at::kFloat);
  const auto summed = [&](at::Tensor partial_TD) {
    if (group.tp_size() > 1) group.all_reduce_sum(partial_TD);
    return partial_TD;
  };
  hidden_TD = plain_input(weights_.embedding_norm, summed(hidden_TD.contiguous()), weights_.config.rms_norm_eps);
  const RopeTables tables = weights_.rope_tables(batch);
  at::Tensor vectors_TNP;
  if (weights_.per_layer.is_on())
    vectors_TNP = summed(weights_.per_layer.reference(hidden_TD, batch, weights_.config.rms_norm_eps).contiguous());
  const AltUpEnds& ends = weights_.altup_ends;
  at::Tensor streams_TAD;
  if (weights_.config.altup) streams_TAD = ends.plain_spread(hidden_TD);
  const std::function<void(at::Tensor&)> sum = [&](at::Tensor& numbers) {
    if (group.tp_size() > 1) group.all_reduce_sum(numbers);
  };
  KeysAndValues of_kind[2];
  for (std::size_t i = 0; i < weights_.decoder.size(); ++i) {
    const DecoderLayer& layer = weights_.decoder[i];
    const auto join = [&](const BlockNorms& norms, const at::Tensor& partial_TD) {
      hidden_TD = hidden_TD + reference_block_output(norms, summed(partial_TD), weights_.config.rms_norm_eps);
    };
    if (layer.altup.is_on()) {
      streams_TAD = layer.altup.plain_predict(streams_TAD, weights_.config.rms_norm_eps);
      hidden_TD = streams_TAD.select(1, layer.altup.active);
    }
    const at::Tensor stream_TD = hidden_TD;
    if (layer.shape().has_indexer) of_kind[weights_.pass_places[i]].visible_LL.clear();
    join(layer.attention.weights().norms,
         layer.attention.reference(stream_TD, batch, tables.gather_cos(layer.shape()), tables.gather_sin(layer.shape()),
                                   sum, &of_kind[weights_.pass_places[i]]));
    if (layer.laurel.is_on())
      hidden_TD = (hidden_TD +
                   layer.laurel.reference(layer.attention.weights().norms, stream_TD, weights_.config.rms_norm_eps)) *
                  Laurel::kFactor;
    if (layer.beside) {
      hidden_TD = hidden_TD + reference_block_output(layer.mlp_norms(), reference_beside(layer, hidden_TD),
                                                     weights_.config.rms_norm_eps);
    } else {
      join(layer.mlp_norms(), layer.mlp_reference(weights_.config.parallel_residual ? stream_TD : hidden_TD, sum));
    }
    const std::int64_t P = weights_.per_layer.width;
    const auto addend = [&](const at::Tensor& input_TD) {
      return layer.tail.reference(input_TD, vectors_TNP.narrow(1, static_cast<std::int64_t>(i) * P, P),
                                  weights_.config.rms_norm_eps);
    };
    if (layer.altup.is_on()) {
      streams_TAD = layer.altup.plain_correct(streams_TAD, hidden_TD, weights_.config.rms_norm_eps);
      const at::Tensor addend_TD = addend(layer.altup.plain_scaled(streams_TAD.select(1, layer.altup.active)));
      streams_TAD.narrow(1, 1, layer.altup.inputs - 1).add_(addend_TD.unsqueeze(1));
      continue;
    }
    if (layer.tail.adds()) hidden_TD = hidden_TD + addend(hidden_TD);
    if (layer.tail.scalar != 1) hidden_TD = hidden_TD * layer.tail.scalar;
  }
  if (weights_.config.altup) hidden_TD = ends.plain_join(streams_TAD);
  return plain_input(weights_.norm, hidden_TD, weights_.config.rms_norm_eps);
}

}  // namespace magister
