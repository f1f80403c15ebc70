// The choice of keys by block of rows, and attention over them; see gpu_indexer.h.
#include "model/gpu/gpu_indexer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "magister/device/upload.h"
#include "model/gpu/latent_attention_kernels.h"

namespace magister::gpu {
namespace {

// Those of the rows from `first` on.
KeyPlaces places_from(const SparseRows& sparse, std::int64_t first) {
  const auto from = [first](const at::Tensor& numbers_T) {
    return numbers_T.defined() ? numbers_T.const_data_ptr<std::int32_t>() + first : nullptr;
  };
  KeyPlaces places;
  if (sparse.table_SP.defined()) {
    places.page_table = sparse.table_SP.const_data_ptr<std::int32_t>();
    places.stride = sparse.table_SP.size(1);
  }
  places.sequence_R = from(sparse.sequence_T);
  places.past_R = from(sparse.past_T);
  places.prefix_R = from(sparse.prefix_T);
  places.own_R = from(sparse.own_T);
  return places;
}

// queries_TL: the short vectors after their norm.
template <typename A>
void choose(const GpuLayer& layer, SparseRows& sparse, const at::Tensor& queries_TL, const LatentRows& rows,
            const LatentProduct& multiply, const Queue& queue) {
  const LatentConfig& latent = *layer.shape.latent;
  const GpuIndexer& indexer = *layer.latent->indexer;
  const std::int64_t T = queries_TL.size(0), I = latent.indexer->heads, E = latent.indexer->head_dim,
                     k = latent.indexer->top_k;
  const bool scores = sparse.longest > k;  // otherwise all rows see all of their keys
  const at::Tensor keys_TE = multiply(indexer.k_proj, rows.input_TD);
  at::Tensor queries_TQ, weights_TI;
  if (scores) {
    queries_TQ = multiply(indexer.q_proj, queries_TL);
    weights_TI = product(indexer.head_proj, rows.input_TD, at::kFloat, queue);
  }
  const IndexRows<A> turn{data<A>(keys_TE),
                          data<A>(queries_TQ),
                          data<float>(indexer.norm_E),
                          data<float>(indexer.norm_bias_E),
                          data<float>(rows.cos_PR2),
                          data<float>(rows.sin_PR2),
                          data<std::int32_t>(rows.rows_T),
                          data<A>(rows.index_pages),
                          data<std::int64_t>(rows.slots_T),
                          I,
                          E,
                          latent.rope_dim,
                          static_cast<float>(IndexerConfig::kNormEps)};
  launch(turn, turn.shape(T), queue);
  sparse.chosen_Tk = at::zeros({T, k}, keys_TE.options().dtype(at::kInt));
  at::Tensor scores_RN;
  if (scores) scores_RN = at::empty({std::min(T, kSparseRows), sparse.longest}, keys_TE.options().dtype(at::kFloat));
  for (std::int64_t first = 0; first < T; first += kSparseRows) {
    const std::int64_t count = std::min(kSparseRows, T - first);
    const KeyPlaces places = places_from(sparse, first);
    const auto* const visible = sparse.visible_T.const_data_ptr<std::int32_t>() + first;
    if (scores)
      start(IndexScores<A>{{data<A>(queries_TQ) + first * I * E, data<float>(weights_TI) + first * I,
                            data<A>(rows.slots_T.defined() ? rows.index_pages : keys_TE), places, visible,
                            data<float>(scores_RN), sparse.longest, count, I, E, k}},
            queue);
    start(ChooseKeys{data<float>(scores_RN), places, visible, data<std::int32_t>(sparse.chosen_Tk) + first * k,
                     sparse.longest, count, static_cast<int>(k)},
          queue);
  }
}

// Where the kernels do not support the sizes or the dtype: in plain ATen code, on the host in double, so that a row's
// bits do not depend on the number of rows. tokens_PW: latents by place; q_THE: rotated.
void attend_plainly(const GpuLayer& layer, const SparseRows& sparse, const at::Tensor& tokens_PW,
                    const at::Tensor& q_THE, const at::Tensor& out_THV) {
  const LatentConfig& latent = *layer.shape.latent;
  const std::int64_t T = q_THE.size(0), N = latent.nope_dim, V = latent.value_dim, C = latent.rank,
                     W = latent.token_width(), k = std::min(latent.indexer->top_k, sparse.longest);
  const at::ScalarType type = q_THE.is_cuda() ? at::kFloat : at::kDouble;
  const at::Tensor up_HNC = layer.latent->up_proj.weight_NK.to(type).view({layer.shape.heads, N + V, C}),
                   key = at::arange(k, q_THE.options().dtype(at::kInt)).unsqueeze(0);
  const std::int64_t at_once = std::clamp<std::int64_t>((std::int64_t{1} << 22) / (k * W), 1, kSparseRows);
  for (std::int64_t first = 0; first < T; first += at_once) {
    const std::int64_t rows = std::min(at_once, T - first);
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, rows); };
    const at::Tensor q = part(q_THE).to(type), hidden_Rk = key >= part(sparse.seen_T).unsqueeze(1),
                     places = part(sparse.chosen_Tk).narrow(1, 0, k).masked_fill(hidden_Rk, 0).reshape({-1});
    const at::Tensor tokens = tokens_PW.index_select(0, places).view({rows, k, W}).to(type),
                     absorbed = at::einsum("rhn,hnc->rhc", {q.narrow(2, 0, N), up_HNC.narrow(1, 0, N)}),
                     q_RHW = at::cat({absorbed, q.narrow(2, N, latent.rope_dim)}, 2),
                     scores = at::matmul(q_RHW, tokens.transpose(1, 2)) * layer.shape.attention_scale,
                     shares = at::softmax(
                         scores.masked_fill(hidden_Rk.unsqueeze(1), -std::numeric_limits<double>::infinity()), -1),
                     sums = at::matmul(shares, tokens.narrow(2, 0, C));
    part(out_THV).copy_(at::einsum("rhc,hvc->rhv", {sums, up_HNC.narrow(1, N, V)}));
  }
}

// Rows of a block at a time, by the kernels of decoding. tokens: pages, or the rows of the pass.
void attend_by_kernels(const GpuLayer& layer, const SparseRows& sparse, const LatentRows& rows,
                       const at::Tensor& tokens, const at::Tensor& q_TQ, const at::Tensor& out_TV, const Queue& queue) {
  const std::int64_t T = q_TQ.size(0), R = std::min(T, kSparseRows),
                     chunks = latent_chunks(std::min(layer.shape.latent->indexer->top_k, sparse.longest));
  const LatentPlaces places(layer.shape, R, q_TQ.device());
  const at::Tensor partial = at::empty({latent_scratch(R, layer.shape, chunks)}, q_TQ.options().dtype(at::kFloat));
  for (std::int64_t first = 0; first < T; first += R) {
    const auto part = [&, count = std::min(R, T - first)](const at::Tensor& all) {
      return all.narrow(0, first, count);
    };
    LatentPlaces of_part = places.first(std::min(R, T - first));
    of_part.q_RQ = part(q_TQ);
    const LatentRows of_rows{{}, rows.cos_PR2, rows.sin_PR2, part(rows.rows_T), tokens};
    queue_latent_attention(layer, of_rows, {{}, {}, part(sparse.seen_T), chunks, part(sparse.chosen_Tk)}, of_part,
                           partial, part(out_TV), queue);
  }
}

}  // namespace

SparseRows sparse_rows(const PackedBatch& batch, const std::vector<BlockTable>& slots, std::int64_t top_k,
                       at::Device device) {
  const std::int64_t T = batch.num_tokens(), S = batch.num_sequences();
  const bool cached = !slots.empty();
  SparseRows out;
  std::int64_t pages = 0;
  for (std::int64_t s = 0; s < S; ++s)
    out.longest = std::max(out.longest, batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
  if (cached) pages = (out.longest + KvPages::kSlots - 1) / KvPages::kSlots;
  // Columns of T numbers, then the table: one copy to the device.
  const std::int64_t columns = cached ? 3 : 5;
  at::Tensor words = at::zeros({columns * T + S * pages}, at::kInt);
  auto* const numbers = words.data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < S; ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], past = batch.past(s), end = past + batch.cu_seqlens[s + 1] - begin;
    const auto index = static_cast<std::size_t>(s);
    const std::int64_t prefix =
        past > 0 && !cached ? batch.cu_seqlens[static_cast<std::size_t>(batch.prefix_of_S[index])] : 0;
    for (std::int64_t position = past; position < end; ++position) {
      std::int32_t* const row = numbers + begin + position - past;
      row[0] = static_cast<std::int32_t>(position + 1);
      row[T] = static_cast<std::int32_t>(std::min(position + 1, top_k));
      row[2 * T] = static_cast<std::int32_t>(cached ? s : past);
      if (cached) continue;
      row[3 * T] = static_cast<std::int32_t>(prefix);
      row[4 * T] = static_cast<std::int32_t>(begin - past);
    }
    if (!cached || end == 0) continue;
    MAGISTER_ASSERT(slots[index].offset == 0);
    std::copy(slots[index].pages, slots[index].pages + (end - 1) / KvPages::kSlots + 1, numbers + 3 * T + s * pages);
  }
  words = upload(words, device);
  const auto column = [&](std::int64_t i) { return words.narrow(0, i * T, T); };
  out.visible_T = column(0);
  out.seen_T = column(1);
  if (cached) {
    out.sequence_T = column(2);
    out.table_SP = words.narrow(0, 3 * T, S * pages).view({S, pages});
  } else {
    out.past_T = column(2);
    out.prefix_T = column(3);
    out.own_T = column(4);
  }
  return out;
}

at::Tensor sparse_attention(const GpuLayer& layer, SparseRows& sparse, const LatentRows& rows,
                            const LatentProduct& multiply, const Queue& queue) {
  const LatentConfig& latent = *layer.shape.latent;
  const std::int64_t T = rows.short_TA.size(0), H = layer.shape.heads, V = latent.value_dim, W = latent.token_width();
  const auto options = rows.short_TA.options();
  const at::Tensor tokens_TW = at::empty({T, W}, options), queries_TL = at::empty({T, latent.query_rank}, options);
  queue_short_vectors(layer, rows, queries_TL, tokens_TW, queue);
  if (layer.latent->indexer)
    with_type(rows.short_TA.scalar_type(),
              [&](auto a) { choose<decltype(a)>(layer, sparse, queries_TL, rows, multiply, queue); });
  const at::Tensor q_TQ = multiply(layer.latent->q_up_proj, queries_TL), out_TV = at::empty({T, H * V}, options),
                   tokens = rows.pages.defined() ? rows.pages : tokens_TW;
  if (layer.latent->key_up_HCN.defined()) {
    attend_by_kernels(layer, sparse, rows, tokens, q_TQ, out_TV, queue);
    return out_TV;
  }
  const at::Tensor q_THE = at::empty({T, H, layer.shape.head_dim}, options);
  turn_queries(layer.shape, rows, q_TQ, q_THE, true, queue);
  attend_plainly(layer, sparse, tokens.view({-1, W}), q_THE, out_TV.view({T, H, V}));
  return out_TV;
}

GpuIndexer load_indexer(WeightSource& source, std::int64_t layer, const GpuWeights& weights,
                        const std::function<GpuLinear(const Linear&)>& make) {
  GpuIndexer indexer{make(source.load_index_q_proj(layer)),
                     make(source.load_index_k_proj(layer)),
                     to_device(source.load_index_weights(layer), weights.device),
                     {},
                     {}};
  indexer.head_proj.weight_NK = indexer.head_proj.weight_NK.to(weights.dtype);
  const BlockNorms norm = source.load_index_k_norm(layer);
  indexer.norm_E = norm.input_D.to(weights.device);
  indexer.norm_bias_E = norm.input_bias_D.to(weights.device);
  return indexer;
}

GpuIndexer random_indexer(const GpuWeights& weights,
                          const std::function<GpuLinear(std::int64_t, std::int64_t, bool)>& make) {
  const LatentConfig& latent = *weights.config.latent;
  const std::int64_t I = latent.indexer->heads, E = latent.indexer->head_dim, D = weights.config.hidden_size;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(weights.device);
  return {make(I * E, latent.query_rank, true), make(E, D, true), make(I, D, false), at::ones({E}, options),
          at::zeros({E}, options)};
}

std::uint64_t sparse_token_bytes(const LayerShape& shape, at::ScalarType dtype) {
  const LatentConfig& latent = *shape.latent;
  const IndexerConfig& indexer = *latent.indexer;
  const std::int64_t H = shape.heads, numbers = short_numbers(shape) + latent.query_rank + latent.token_width() +
                                                (indexer.heads + 1) * indexer.head_dim +
                                                H * (2 * shape.head_dim + latent.value_dim);
  return static_cast<std::uint64_t>(numbers) * c10::elementSize(dtype) +
         4 * static_cast<std::uint64_t>(indexer.heads + indexer.top_k + 5);
}

std::uint64_t sparse_block_bytes(const LayerShape& shape, std::int64_t keys, at::ScalarType dtype) {
  const LatentConfig& latent = *shape.latent;
  const std::int64_t seen = std::min(latent.indexer->top_k, keys);
  const std::uint64_t scores = 4 * static_cast<std::uint64_t>(kSparseRows * keys);
  if (dtype == at::kBFloat16)
    return scores + static_cast<std::uint64_t>(kSparseRows * LatentPlaces::bytes_of_row(shape)) +
           4 * static_cast<std::uint64_t>(latent_scratch(kSparseRows, shape, latent_chunks(seen)));
  // Gathered latents, scores with and without the hidden ones, and their shares, of the rows of attend_plainly().
  const std::int64_t rows =
      std::clamp<std::int64_t>((std::int64_t{1} << 22) / (seen * latent.token_width()), 1, kSparseRows);
  return scores + 4 * static_cast<std::uint64_t>(
                          rows * (2 * seen * latent.token_width() +
                                  shape.heads * (4 * seen + 3 * latent.token_width() + latent.value_dim)) +
                          shape.heads * (latent.nope_dim + latent.value_dim) * latent.rank);
}

}  // namespace magister::gpu
