// The order of a pass. The kernels, gpu_linear.cpp and gpu_attention.cpp do the arithmetic.
#include "model/gpu/gpu_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"
#include "magister/model/throughput_decoding.h"
#include "magister/model/transformer.h"
#include "model/cpu/altup.h"
#include "model/gpu/cudnn_attention.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/fp8_kernel.h"
#include "model/learned_positions.h"
#include "model/model_backend.h"

namespace magister::gpu {

GpuModel::GpuModel(std::shared_ptr<const GpuWeights> weights, const Queue& queue, ProcessGroup& group)
    : held_(std::move(weights)),
      weights_(*held_),
      queue_(queue),
      group_(group),
      decoder_(weights_, rope_, group_, queue_) {}

// The shared table stays on the device. Sequences whose length changes the frequencies append their own rows to it.
void GpuModel::place_rope_rows(GpuPass& pass) {
  const PackedBatch& batch = pass.batch;
  std::int64_t longest = 1;
  const auto length_of = [&](std::int64_t s) { return batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; };
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (!rope_needs_own_table(weights_.config, length_of(s))) longest = std::max(longest, length_of(s));
  }
  rope_.reach(longest);
  const std::size_t tables = num_rope_tables(weights_.config);
  std::vector<std::vector<at::Tensor>> cos(tables), sin(tables);
  for (std::size_t i = 0; i < tables; ++i) {
    cos[i] = {rope_.cos(i)};
    sin[i] = {rope_.sin(i)};
  }
  at::Tensor rows_T = at::empty({batch.num_tokens()}, at::kInt);
  auto* row = rows_T.data_ptr<std::int32_t>();
  std::int64_t first_own = rope_.positions();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t length = length_of(s);
    std::int64_t first = 0;
    if (rope_needs_own_table(weights_.config, length)) {
      refuse_dynamic_rope_with_cache(batch, weights_.config, length);
      for (std::size_t i = 0; i < tables; ++i) {
        const RopeTable own = rope_table(weights_.config, length, length, i);  // there is no cache, so all are needed
        cos[i].push_back(upload(own.cos_PE2, weights_.device));
        sin[i].push_back(upload(own.sin_PE2, weights_.device));
      }
      first = std::exchange(first_own, first_own + length);
    }
    for (std::int64_t position = batch.past(s); position < length; ++position)
      *row++ = static_cast<std::int32_t>(first + position);
  }
  for (std::size_t i = 0; i < tables; ++i) {
    pass.cos_PE2.push_back(cos[i].size() == 1 ? cos[i][0] : at::cat(cos[i], 0));
    pass.sin_PE2.push_back(sin[i].size() == 1 ? sin[i][0] : at::cat(sin[i], 0));
  }
  pass.rope_rows_T = upload(rows_T, weights_.device);
}

void GpuModel::use_cudnn_attention() {
  const auto layer = std::find_if(weights_.layers.begin(), weights_.layers.end(), [&](const GpuLayer& one) {
    return cudnn_takes(one.shape, one.scores.sinks_H.defined(), weights_.dtype);
  });
  MAGISTER_CHECK(
      layer != weights_.layers.end(), ExitCode::kConfig,
      "model.attention: cudnn, but it supports no layer of this model (it needs bf16, no window, no softcap, "
      "no latent attention and no other terms of scores); remove the key");
  const CudnnTrial trial = try_cudnn_attention(layer->shape, weights_.dtype, weights_.device, queue_);
  MAGISTER_CHECK(trial.problem.empty(), ExitCode::kConfig,
                 "model.attention: cudnn cannot be used on {}: {} (rows would be wrong, or depend on their "
                 "neighbours); remove the key",
                 weights_.device.str(), trial.problem);
  cudnn_attention_ = true;
  if (trial.of_flash > 0 && group_.tp_rank() == 0)
    log_info("attention of a text of 4,096 tokens: cuDNN takes {:.2f} of flash attention's time{}", trial.of_flash,
             trial.of_flash > 1 ? "; without model.attention: cudnn this run would be faster" : "");
}

void GpuModel::use_throughput_decoding(const DecodeProducts::Algorithms& algorithms) {
  check_throughput_decoding(weights_.config, weights_.dtype, group_.tp_size());
  decode_products_.emplace(weights_, queue_, algorithms);
  decoder_.use_products(*decode_products_);
}

at::Tensor GpuModel::logits(const at::Tensor& hidden_RD) const {
  if (!decode_products_ || !decode_products_->has_head()) return product(weights_.head, hidden_RD, at::kFloat, queue_);
  const std::int64_t R = hidden_RD.size(0);
  const at::Tensor rows_RD = hidden_RD.contiguous();
  at::Tensor logits_Rv = at::empty({R, weights_.head.outputs}, hidden_RD.options().dtype(at::kFloat));
  for (std::int64_t row = 0; row < R; row += kMostDecodeRows) {
    const std::int64_t rows = std::min<std::int64_t>(kMostDecodeRows, R - row);
    decode_products_->multiply_by_head(weights_.head, rows_RD.narrow(0, row, rows), logits_Rv.narrow(0, row, rows),
                                       queue_);
  }
  return logits_Rv;
}

GpuPass GpuModel::make_pass(const PackedBatch& batch, const std::vector<BlockTable>& slots) {
  GpuPass pass{.batch = batch, .attention = {}, .cached = !slots.empty()};
  const auto& flags = batch.is_decode_S;
  if (const auto& latent = weights_.config.latent; latent && latent->indexer) {
    pass.sparse = std::make_shared<SparseRows>(sparse_rows(batch, slots, latent->indexer->top_k, weights_.device));
  } else if (pass.cached && !flags.empty() && std::find(flags.begin(), flags.end(), 0) == flags.end() &&
             absorbs_latents(weights_.config, weights_.dtype)) {
    pass.latent_keys = latent_keys(batch, slots, weights_.device);
  } else {
    pass.attention = plan_attention(batch, slots, weights_.device, cudnn_attention_,
                                    weights_.config.chunked_windows ? weights_.config.sliding_window : 0);
  }
  pass.ids_T = upload(batch.token_ids_T, weights_.device);
  if (weights_.config.learned_positions || weights_.config.query_scale_beta > 0)
    pass.positions_T = upload(batch.positions_T, weights_.device);
  if (batch.read_rows) pass.read_R = upload(at::tensor(*batch.read_rows, at::kLong), weights_.device);
  place_rope_rows(pass);
  if (!slots.empty()) {
    at::Tensor slots_T = at::empty({batch.num_tokens()}, at::kLong);
    auto* slot = slots_T.data_ptr<std::int64_t>();
    for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
      const BlockTable& sequence = slots[static_cast<std::size_t>(s)];
      const std::int64_t first = sequence.offset + batch.past(s), rows = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
      for (std::int64_t j = first; j < first + rows; ++j) {
        *slot++ = sequence.pages[j / KvPages::kSlots] * KvPages::kSlots + j % KvPages::kSlots;
      }
    }
    pass.slots_T = upload(slots_T, weights_.device);
  }
  pass.hidden_TD = at::empty({batch.num_tokens(), weights_.config.hidden_size},
                             at::TensorOptions().dtype(at::kFloat).device(weights_.device));
  return pass;
}

void GpuModel::embed(GpuPass& pass) const {
  embed_rows(weights_, pass.ids_T, pass.positions_T, pass.hidden_TD, queue_);
  if (group_.tp_size() > 1) group_.all_reduce_sum(pass.hidden_TD);
  norm_embeddings(weights_, pass.hidden_TD, queue_);
}

void GpuModel::take_delta(GpuPass& pass) const {
  if (!pass.delta_TD.defined()) return;
  if (group_.tp_size() > 1 && !pass.delta_is_sum) group_.finish_all_reduce_sum(pass.delta_TD);
  if (!pass.delta_norm_D.defined()) return;
  with_type(pass.delta_TD.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const NormRows<A> on_delta{data<A>(pass.delta_TD), data<float>(pass.delta_norm_D), weights_.config.hidden_size,
                               static_cast<float>(weights_.config.rms_norm_eps)};
    launch(on_delta, on_delta.shape(pass.delta_TD.size(0)), queue_);
  });
}

ProductRows GpuModel::norm_for(const GpuLinear& next, GpuPass& pass, const BlockNorms& norms) const {
  if (!next.fp8_NK.defined() || weights_.config.norm_kind == NormKind::kLayer) return {norm(pass, norms)};
  take_delta(pass);
  const std::int64_t T = pass.hidden_TD.size(0), D = weights_.config.hidden_size;
  ProductRows rows = ProductRows::empty_fp8(T, D, weights_.device);
  with_type(pass.delta_TD.defined() ? pass.delta_TD.scalar_type() : at::kBFloat16, [&](auto delta) {
    using Delta = decltype(delta);
    const NormQuantize<Delta> kernel{data<float>(pass.hidden_TD),
                                     data<Delta>(pass.delta_TD),
                                     data<float>(norms.input_D),
                                     data<std::uint8_t>(rows.bytes_MK),
                                     data<float>(rows.scale_M1),
                                     D,
                                     static_cast<float>(weights_.config.rms_norm_eps),
                                     pass.delta_factor};
    launch(kernel, kernel.shape(T), queue_);
  });
  pass.delta_TD.reset();
  return rows;
}

at::Tensor GpuModel::norm(GpuPass& pass, const BlockNorms& norms) const {
  take_delta(pass);
  at::Tensor out_TD = at::empty(pass.hidden_TD.sizes(), pass.hidden_TD.options().dtype(weights_.dtype));
  with_type(weights_.dtype, [&](auto a) {
    using A = decltype(a);
    add_norm<A>(weights_, pass.hidden_TD, pass.delta_TD, norms, out_TD, queue_, pass.delta_factor);
  });
  pass.delta_TD.reset();
  return out_TD;
}

at::Tensor GpuModel::mlp(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD) const {
  if (!layer.experts.empty()) return experts(layer, normed_TD.x_MK, normed_TD.x_MK);
  if (layer.shape.gate_cutoff) return sparse_mlp(layer, pass, normed_TD);
  return one_mlp(layer.gate_up_proj, layer.down_proj, function_of(layer), pass.cached, normed_TD);
}

void GpuModel::begin_sum(GpuPass& pass, at::Tensor partial_TD, const BlockNorms& norms, float factor) const {
  pass.delta_TD = std::move(partial_TD);
  pass.delta_norm_D = norms.output_D;
  pass.delta_factor = factor;
  pass.delta_is_sum = false;
  if (group_.tp_size() > 1) group_.begin_all_reduce_sum(pass.delta_TD);
}

namespace {

// Sequences [first, last) of a batch without a cache; none of them shares a prefix with an earlier sequence outside
// this range.
PackedBatch sequences_of(const PackedBatch& batch, std::int64_t first, std::int64_t last) {
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  std::vector<std::vector<TokenId>> sequences;
  std::vector<std::int64_t> past, prefix_of;
  for (auto s = static_cast<std::size_t>(first); s < static_cast<std::size_t>(last); ++s) {
    sequences.emplace_back(ids + batch.cu_seqlens[s], ids + batch.cu_seqlens[s + 1]);
    if (batch.prefix_of_S.empty()) continue;
    past.push_back(batch.past_S[s]);
    prefix_of.push_back(batch.prefix_of_S[s] - first);
  }
  PackedBatch part = pack_sequences(sequences, std::move(past));
  part.prefix_of_S = std::move(prefix_of);
  if (batch.read_rows) {
    part.read_rows.emplace();
    for (const std::int64_t row : *batch.read_rows) {
      if (row >= batch.cu_seqlens[first] && row < batch.cu_seqlens[last])
        part.read_rows->push_back(row - batch.cu_seqlens[first]);
    }
  }
  return part;
}

}  // namespace

std::vector<PackedBatch> GpuModel::parts_of(const PackedBatch& batch, bool cached) const {
  // With fewer rows, the last wave of the products' blocks would be poorly filled; the host has no waves. With a cache,
  // sequences may read each other's pages.
  const std::int64_t least = queue_.on_host() ? 1 : 1024, T = batch.num_tokens();
  std::vector<PackedBatch> parts;
  // Norms over all heads sum over shards in the middle of attention, and norms of an MLP beside experts and sparse
  // gates in the middle of their block, while the sum of another part would be in flight.
  const bool sums_inside = weights_.config.qk_norm_of_all_heads || weights_.config.dense_beside_experts ||
                           !weights_.config.gate_sparsity.empty();
  if (group_.tp_size() == 1 || sums_inside || cached || batch.num_sequences() < 2 || T < 2 * least) return parts;
  for (std::int64_t s = 1; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s];
    if (begin < least || begin < T / 2 || batch.past(s) > 0) continue;
    return {sequences_of(batch, 0, s), sequences_of(batch, s, batch.num_sequences())};
  }
  return parts;  // the last sequence, or the last group with a shared prefix, holds the second half
}

at::Tensor GpuModel::forward_rows(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache* cache,
                                  FirstNotFinite* watch) {
  std::vector<PackedBatch> parts = parts_of(batch, cache != nullptr);
  if (parts.empty()) parts.push_back(batch);
  std::vector<GpuPass> passes;
  for (const PackedBatch& part : parts) {
    passes.push_back(make_pass(part, slots));
    passes.back().watch = watch;
    embed(passes.back());
    begin_stream(passes.back());
  }
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    std::vector<ProductRows> beside;
    for (GpuPass& pass : passes) beside.push_back(attention_block(i, pass, cache));
    for (std::size_t p = 0; p < passes.size(); ++p) {
      if (passes[p].hidden_TD.size(0) > 0) mlp_block(weights_.layers[i], passes[p], beside[p]);
    }
  }
  std::vector<at::Tensor> out;
  out.reserve(passes.size());
  for (GpuPass& pass : passes) {
    if (pass.hidden_TD.size(0) > 0) end_stream(pass);
    out.push_back(pass.hidden_TD.size(0) > 0 ? norm(pass, weights_.norm) : pass.hidden_TD.to(weights_.dtype));
    if (watch == nullptr) continue;
    watch->look(weights_.config.num_hidden_layers - 1, pass.hidden_TD);
    watch->look(weights_.config.num_hidden_layers, out.back());
  }
  return out.size() == 1 ? out[0] : at::cat(out, 0);
}

std::string GpuModel::first_not_finite(const PackedBatch& batch) {
  FirstNotFinite first(weights_.config.num_hidden_layers);
  forward_rows(batch, {}, nullptr, &first);
  return first.place();
}

bool GpuModel::decodes(const PackedBatch& batch, std::int64_t sequence) const {
  const bool writes = !batch.is_decode_S.empty() && batch.is_decode_S[static_cast<std::size_t>(sequence)] != 0;
  MAGISTER_ASSERT(!writes ||
                  (batch.past(sequence) > 0 && batch.cu_seqlens[sequence + 1] - batch.cu_seqlens[sequence] == 1));
  return writes && (decoder_.works() || absorbs_latents(weights_.config, weights_.dtype)) &&
         !rope_needs_own_table(weights_.config, batch.past(sequence) + 1);
}

// Rows that decode, apart from prompts: in the decoder's pass, or among latents where it does not work.
at::Tensor GpuModel::decode(const std::vector<GpuDecoder::Row>& rows, KvCache& cache, const at::Tensor& drawn_ids_R) {
  if (decoder_.works()) return decoder_.forward(rows, cache, drawn_ids_R);
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::int64_t> past;
  std::vector<BlockTable> slots;
  for (const GpuDecoder::Row& row : rows) {
    ids.push_back({row.id});
    past.push_back(row.past);
    slots.push_back(row.slots);
  }
  PackedBatch batch = pack_sequences(ids, past);
  batch.is_decode_S.assign(rows.size(), 1);
  return forward_rows(batch, slots, &cache);
}

bool GpuModel::takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const {
  return decoder_.works() && rows <= kGpuDecodingRows && !rope_needs_own_table(weights_.config, tokens);
}

at::Tensor GpuModel::forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache* cache) {
  const std::int64_t T = batch.num_tokens(), D = weights_.config.hidden_size;
  if (T == 0) return at::empty({0, D}, at::TensorOptions().dtype(weights_.dtype).device(weights_.device));
  check_positions(weights_.config, batch);
  std::vector<GpuDecoder::Row> decoding;
  std::vector<std::vector<TokenId>> others;
  std::vector<std::int64_t> decoding_rows, other_rows, other_past, read_others;  // rows of others that are read
  std::int64_t num_others = 0;
  std::vector<BlockTable> other_slots;
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; cache != nullptr && s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    if (decodes(batch, s)) {
      decoding.push_back({ids[begin], batch.past(s), slots[static_cast<std::size_t>(s)]});
      decoding_rows.push_back(begin);
      continue;
    }
    others.emplace_back(ids + begin, ids + end);
    other_past.push_back(batch.past(s));
    other_slots.push_back(slots[static_cast<std::size_t>(s)]);
    for (std::int64_t row = begin; row < end; ++row, ++num_others) {
      if (batch.read_rows && !std::binary_search(batch.read_rows->begin(), batch.read_rows->end(), row)) continue;
      other_rows.push_back(row);
      read_others.push_back(num_others);
    }
  }
  if (cache == nullptr || decoding.empty()) return forward_rows(batch, slots, cache);
  if (others.empty() && T <= kGpuDecodingRows)
    return rows_that_are_read(batch, decode(decoding, *cache, batch.drawn_ids_T));
  MAGISTER_ASSERT(!batch.drawn_ids_T.defined());
  // Prompts first: a decoding row may read pages that they fill in this pass.
  at::Tensor out_TD = at::empty({T, D}, at::TensorOptions().dtype(weights_.dtype).device(weights_.device));
  const auto place = [&](const std::vector<std::int64_t>& rows, const at::Tensor& hidden) {
    out_TD.index_copy_(0, upload(at::tensor(rows, at::kLong), weights_.device), hidden);
  };
  if (!others.empty()) {
    PackedBatch prompts = pack_sequences(others, other_past);
    if (batch.read_rows) prompts.read_rows = read_others;
    place(other_rows, forward_rows(prompts, other_slots, cache));
  }
  const auto most = static_cast<std::size_t>(kGpuDecodingRows);
  for (std::size_t first = 0; first < decoding.size(); first += most) {
    const std::size_t last = std::min(first + most, decoding.size());
    const auto part = [&](const auto& all) {
      return std::decay_t<decltype(all)>(all.begin() + first, all.begin() + last);
    };
    place(part(decoding_rows), decode(part(decoding), *cache, {}));
  }
  return rows_that_are_read(batch, out_TD);
}

}  // namespace magister::gpu
