// One decoding pass is a fixed list of kernels over fixed buffers.
#include "model/gpu/gpu_decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "magister/core/log.h"
#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "magister/parallel/peer_sums.h"
#include "model/gpu/attention.h"
#include "model/gpu/decoder_places.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_decoder_bucket.h"

namespace magister::gpu {

GpuDecoder::GpuDecoder(const GpuWeights& weights, RopeOnDevice& rope, ProcessGroup& group, const Queue& queue)
    : weights_(weights),
      rope_(rope),
      group_(group),
      queue_(queue),
      widths_(row_widths(weights.config, weights.partition)) {
  queue_.early = early_launch_works(queue);
  works_ = kernels_take(weights.config, group.tp_size(), weights.dtype);
  if (works_ && weights.config.num_experts > 0) experts_ = DecoderExperts(weights);
  works_ = works_ && experts_.work();
  const char* wanted = std::getenv("MAGISTER_CUDA_GRAPHS");
  graphs_ = wanted == nullptr || std::string_view(wanted) != "0";
  whole_parts_ = weights.layers.front().shape.all_heads == 0 && !weights.config.dense_beside_experts;
  // On other devices, ATen's product of 8-bit floats allocates a workspace for each call. A graph would still use it
  // after it is freed.
  may_record_ = !weights.fp8 || queue.on_host() || gpu_compute_capability(queue.device) == 90;
}
GpuDecoder::~GpuDecoder() = default;

GpuDecoder::Places& GpuDecoder::places_of(std::int64_t rows, std::int64_t chunks) {
  if (const auto known = places_.find({rows, chunks}); known != places_.end()) return *known->second;
  auto places = std::make_unique<Places>();  // stored only when it is complete: there may be no memory for it
  places->rows = rows;
  places->chunks = chunks;
  const std::int64_t bytes = bytes_of_inputs(rows, chunks);
  places->staging = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!queue_.on_host()));
  places->inputs = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(weights_.device));
  places->slots_R = places->inputs.narrow(0, 0, 8 * rows).view(at::kLong);
  const at::Tensor words = places->inputs.narrow(0, 8 * rows, bytes - 8 * rows).view(at::kInt);
  at::Tensor* const columns[] = {&places->ids_R, &places->rope_rows_R, &places->sequence_R, &places->visible_R};
  for (std::int64_t i = 0; i < 4; ++i) *columns[i] = words.narrow(0, i * rows, rows);
  places->table_RP = words.narrow(0, 4 * rows, rows * kPagesAChunk * chunks).view({rows, -1});
  const auto work = work_places(widths_);
  at::Tensor* const into[] = {&places->hidden_RD, &places->normed_RD,   &places->qkv_RQ,    &places->attention_RA,
                              &places->delta_RD,  &places->gate_up_RF2, &places->middle_RF, &places->squares_R2,
                              &places->given_RN,  &places->gate_RG};
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto options = at::TensorOptions().dtype(work[i].first).device(weights_.device);
    if (work_.size() == i) work_.push_back(at::empty({kGpuDecodingRows, work[i].second}, options));
    *into[i] = work_[i].narrow(0, 0, rows);
  }
  experts_.reserve();
  if (weights_.fp8 && !fp8_.defined()) fp8_ = Fp8Places(widths_, weights_.device);
  if (const LayerShape& shape = weights_.layers.front().shape; shape.latent && !latent_.tokens_RW.defined())
    latent_ = LatentPlaces(shape, kGpuDecodingRows, weights_.device);
  return *(places_[{rows, chunks}] = std::move(places));
}

void GpuDecoder::fill_inputs(Places& places, const std::vector<Row>& rows, std::int64_t trash_slot) {
  group_.wait_for(places.copied);
  const std::int64_t R = places.rows, stride = kPagesAChunk * places.chunks;
  auto* slots = reinterpret_cast<std::int64_t*>(places.staging.data_ptr<std::uint8_t>());
  auto* words = reinterpret_cast<std::int32_t*>(slots + R);
  // Idle rows see no key, and write their own key to a page that is never read.
  std::fill(words, words + R * (4 + stride), 0);
  for (std::int64_t r = 0; r < R; ++r) {
    slots[r] = trash_slot;
    words[2 * R + r] = static_cast<std::int32_t>(r);
    if (r >= static_cast<std::int64_t>(rows.size())) continue;
    const Row& row = rows[static_cast<std::size_t>(r)];
    slots[r] = row.slots.pages[row.past / KvPages::kSlots] * KvPages::kSlots + row.past % KvPages::kSlots;
    words[r] = row.id;
    words[R + r] = words[3 * R + r] = static_cast<std::int32_t>(row.past);
    ++words[3 * R + r];
    std::copy(row.slots.pages, row.slots.pages + row.past / KvPages::kSlots + 1, words + 4 * R + r * stride);
  }
  places.inputs.copy_(places.staging, /*non_blocking=*/true);
  if (!queue_.on_host()) places.copied = GpuEvent::record();
}

ProductRows GpuDecoder::rows_for(const GpuLinear& linear, const ProductRows& x_RK, const Queue& queue) const {
  if (!linear.fp8_NK.defined() || x_RK.bytes_MK.defined()) return x_RK;
  const ProductRows rows = Fp8Places::first(fp8_.rows_TK(linear.inputs), x_RK.x_MK.size(0));
  to_fp8_rows(x_RK.x_MK, rows, queue);
  return rows;
}

void GpuDecoder::queue_product(const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN, const Queue& queue,
                               const NextWeight& next) {
  const ProductRows rows = rows_for(linear, x_RK, queue);
  if (products_ != nullptr) return products_->multiply(linear, rows, out_RN, queue);
  if (!linear.fp8_NK.defined()) return product_of_few(linear, rows.x_MK, out_RN, queue, next);
  const bool of_norm = rows.bytes_MK.data_ptr() == fp8_.normed_TD.bytes_MK.data_ptr();
  const ProductRows tile = of_norm ? fp8_.normed_TD : fp8_.rows_TK(linear.inputs);
  if (out_RN.scalar_type() == at::kBFloat16)
    return product_of_fp8_tile(linear, tile, out_RN.as_strided({kGpuDecodingRows, linear.outputs}, {linear.outputs, 1}),
                               queue);
  product_of_fp8_tile(linear, tile, fp8_.rounded_TD, queue);
  call_library([out_RN, from = fp8_.rounded_TD.narrow(0, 0, out_RN.size(0))] { out_RN.copy_(from); }, queue);
}

void GpuDecoder::queue_norm_on_delta(Places& places, const BlockNorms* of, const Queue& queue) {
  if (of == nullptr || !of->output_D.defined()) return;
  const NormRows<float> on_delta{data<float>(places.delta_RD), data<float>(of->output_D), weights_.config.hidden_size,
                                 static_cast<float>(weights_.config.rms_norm_eps)};
  launch(on_delta, on_delta.shape(places.rows), queue);
}

ProductRows GpuDecoder::normed_rows(const GpuLinear& next, const Places& places) const {
  if (!next.fp8_NK.defined() || weights_.config.norm_kind == NormKind::kLayer) return {places.normed_RD};
  return Fp8Places::first(fp8_.normed_TD, places.rows);
}

ProductRows GpuDecoder::queue_norm_for(const GpuLinear& next, Places& places, const Joins& joins,
                                       const BlockNorms& norms, const Queue& queue) {
  const ProductRows rows = normed_rows(next, places);
  if (!rows.bytes_MK.defined()) {
    queue_norm(places, joins, norms, queue);
    return rows;
  }
  queue_norm_on_delta(places, joins.of, queue);
  const NormQuantize<float> kernel{data<float>(places.hidden_RD),
                                   joins.of != nullptr ? data<float>(places.delta_RD) : nullptr,
                                   data<float>(norms.input_D),
                                   data<std::uint8_t>(rows.bytes_MK),
                                   data<float>(rows.scale_M1),
                                   weights_.config.hidden_size,
                                   static_cast<float>(weights_.config.rms_norm_eps),
                                   joins.factor};
  launch(kernel, kernel.shape(places.rows), queue);
  return rows;
}

void GpuDecoder::queue_norm(Places& places, const Joins& joins, const BlockNorms& norms, const Queue& queue) {
  queue_norm_on_delta(places, joins.of, queue);
  add_norm<Bf16>(weights_, places.hidden_RD, joins.of != nullptr ? places.delta_RD : at::Tensor(), norms,
                 places.normed_RD, queue, joins.factor);
}

void GpuDecoder::queue_latents(Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                               const at::Tensor& pages, const Queue& queue) {
  const LayerShape& shape = layer.shape;
  queue_product(layer.qkv_proj, normed_RD, places.qkv_RQ, queue);
  const LatentRows rows{
      places.qkv_RQ, rope_.cos(shape.rope_table), rope_.sin(shape.rope_table), places.rope_rows_R, pages,
      places.slots_R};
  LatentPlaces latent = latent_.first(places.rows);
  queue_short_vectors(layer, rows, latent.queries_RL, latent.tokens_RW, queue);
  if (latent.q_RQ.defined()) queue_product(layer.latent->q_up_proj, {latent.queries_RL}, latent.q_RQ, queue);
  const LatentKeys seen{places.table_RP, places.sequence_R, places.visible_R, latent_chunks_of(places.chunks)};
  queue_latent_attention(layer, rows, seen, latent, partial_, places.attention_RA, queue);
  queue_product(layer.o_proj, {places.attention_RA}, places.delta_RD, queue);
}

void GpuDecoder::queue_attention(Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                                 const KvCache& cache, const Queue& queue) {
  const LayerShape& shape = layer.shape;
  const at::Tensor &keys = cache.keys[layer.kv_layer], &values = cache.values[layer.kv_layer];
  if (layer.latent) return queue_latents(places, layer, normed_RD, values, queue);
  at::Tensor qkv_RQ = narrowed(places.qkv_RQ, shape.qkv_features()),
             out_RA = narrowed(places.attention_RA, shape.heads * shape.value_dim());
  const bool is_rotated = queue_rotated_product(places, layer, normed_RD, qkv_RQ, cache, queue);
  if (is_rotated) {
    // q, k and v are where the next kernel reads them.
  } else if (repeated_keys(shape) > 0) {
    at::Tensor given_RN = narrowed(places.given_RN, layer.qkv_proj.outputs);
    queue_product(layer.qkv_proj, normed_RD, given_RN, queue);
    repeat_keys<Bf16>(shape, given_RN, qkv_RQ, queue);
  } else {
    queue_product(layer.qkv_proj, normed_RD, qkv_RQ, queue);
  }
  const HeadSquares squares{places.squares_R2, [&](at::Tensor& sum) { queue_sum(sum, queue); }};
  if (!is_rotated)
    rotate_heads<Bf16>(layer, squares, qkv_RQ, rope_.cos(shape.rope_table), rope_.sin(shape.rope_table),
                       places.rope_rows_R, places.rope_rows_R, keys, values, places.slots_R, queue);
  paged_attention(paged_arguments<Bf16>(shape, qkv_RQ, keys, values, places.table_RP, places.sequence_R,
                                        places.visible_R, places.chunks, partial_, out_RA, layer.scores),
                  queue);
  if (layer.has_gate()) {
    at::Tensor gate_RG = narrowed(places.gate_RG, shape.gate_numbers);
    queue_product(layer.attention_gate, normed_RD, gate_RG, queue);
    gate_outputs<Bf16>(shape, gate_RG, out_RA, queue);
  }
  queue_product(layer.o_proj, {out_RA}, places.delta_RD, queue, after_attention(layer));
}

// The embeddings, attention and MLP of each layer, and the last norm.
std::int64_t GpuDecoder::num_parts() const { return 2 * static_cast<std::int64_t>(weights_.layers.size()) + 2; }

at::Tensor* GpuDecoder::queue_part(std::int64_t part, Places& places, KvCache& cache, const Queue& queue) {
  if (part == 0) {
    embed_rows(weights_, places.ids_R, places.rope_rows_R, places.hidden_RD, queue);
    return &places.hidden_RD;
  }
  if (part == num_parts() - 1) {
    queue_norm(places, {&weights_.layers.back().mlp_norms, weights_.layers.back().factor}, weights_.norm, queue);
    return nullptr;
  }
  const auto i = static_cast<std::size_t>((part - 1) / 2);
  const GpuLayer& layer = weights_.layers[i];
  if (part % 2 == 1) {
    Joins joins;
    if (i > 0) {
      joins = {&weights_.layers[i - 1].mlp_norms, weights_.layers[i - 1].factor};
    } else {
      norm_embeddings(weights_, places.hidden_RD, queue);
    }
    queue_attention(places, layer, queue_norm_for(layer.first_product(), places, joins, layer.attention_norms, queue),
                    cache, queue);
    return &places.delta_RD;
  }
  return queue_second_block(i, places, queue);
}

void GpuDecoder::use_products(const DecodeProducts& products) {
  products_ = &products;
  places_.clear();  // their graphs hold the other products
}

void GpuDecoder::find_peer_sums() {
  if (works_ && group_.tp_size() > 1) peer_sums_ = group_.peer_sums(queue_);
}

bool GpuDecoder::sums_are_kernels(std::int64_t rows) const {
  return group_.tp_size() == 1 || (peer_sums_ != nullptr && peer_sums_->takes(rows * weights_.config.hidden_size));
}

void GpuDecoder::queue_sum(at::Tensor& partial, const Queue& queue) {
  if (group_.tp_size() == 1) return;
  if (!sums_are_kernels(partial.size(0))) return group_.all_reduce_sum(partial);
  peer_sums_->queue_sum(data<float>(partial), partial.numel(), queue);
}

void GpuDecoder::queue_pass(Places& places, KvCache& cache, const Queue& queue) {
  for (std::int64_t part = 0; part < num_parts(); ++part) {
    at::Tensor* const partial = queue_part(part, places, cache, queue);
    if (partial != nullptr) queue_sum(*partial, queue);
  }
}

// If the group computes the sums, by any method, each part between them gets its own graph.
void GpuDecoder::capture(Places& places, KvCache& cache) {
  places.graphs.clear();
  if (weights_.fp8 && products_ == nullptr) {
    const auto some = std::find_if(weights_.layers.begin(), weights_.layers.end(),
                                   [](const GpuLayer& layer) { return layer.qkv_proj.fp8_NK.defined(); });
    if (some != weights_.layers.end())
      CudaGraph::call_before(queue_, [&] {
        const GpuLinear& product = some->qkv_proj;
        at::Tensor out_TN = work_[2].as_strided({kGpuDecodingRows, product.outputs}, {product.outputs, 1});
        product_of_fp8_tile(product, fp8_.normed_TD, out_TN, queue_);
      });
  }
  if (sums_are_kernels(places.rows)) {
    places.graphs.push_back(CudaGraph::capture(queue_, [&](const Queue& queue) { queue_pass(places, cache, queue); }));
    return;
  }
  for (std::int64_t part = 0; part < num_parts(); ++part)
    places.graphs.push_back(
        CudaGraph::capture(queue_, [&](const Queue& queue) { queue_part(part, places, cache, queue); }));
}

void GpuDecoder::launch_graphs(Places& places) {
  for (std::size_t part = 0; part < places.graphs.size(); ++part) {
    places.graphs[part].launch();
    if (part + 1 < places.graphs.size()) group_.all_reduce_sum(part == 0 ? places.hidden_RD : places.delta_RD);
  }
}

// The first pass runs kernel by kernel: the first start of a kernel loads its code, which must not happen during a
// capture.
void GpuDecoder::run(Places& places, KvCache& cache) {
  const bool recordable = may_record_ && (whole_parts_ || sums_are_kernels(places.rows));
  if (!graphs_ || !recordable || places.runs++ == 0) return queue_pass(places, cache, queue_);
  const Memory memory{cache.generation, rope_.generation(), partial_generation_};
  if (places.graphs.empty() || places.captured_with != memory) {
    try {
      capture(places, cache);
    } catch (const std::exception& error) {
      if (!weights_.fp8) throw;
      log_warning(
          "decoding continues kernel by kernel on this rank, because a product of 8-bit floats cannot be captured in a "
          "CUDA graph: {}",
          printable(error.what(), 300));
      places.graphs.clear();
      graphs_ = false;
      return queue_pass(places, cache, queue_);
    }
    places.captured_with = memory;
  }
  launch_graphs(places);
}

at::Tensor GpuDecoder::forward(const std::vector<Row>& rows, KvCache& cache, const at::Tensor& drawn_ids_R) {
  MAGISTER_ASSERT(!rows.empty() && static_cast<std::int64_t>(rows.size()) <= kGpuDecodingRows);
  find_peer_sums();
  std::int64_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.past + 1);
  rope_.reach(longest);
  Places& places =
      places_of(bucket_of(static_cast<std::int64_t>(rows.size())), next_power_of_two(attention_chunks(longest)));
  const std::int64_t numbers = partial_numbers(places.rows, weights_.layers.front().shape, widths_, places.chunks);
  if (!partial_.defined() || partial_.numel() < numbers) {
    partial_.reset();
    partial_ = at::empty({numbers}, places.hidden_RD.options());
    ++partial_generation_;
  }
  fill_inputs(places, rows, cache.num_pages * KvPages::kSlots);
  if (drawn_ids_R.defined()) places.ids_R.narrow(0, 0, static_cast<std::int64_t>(rows.size())).copy_(drawn_ids_R);
  run(places, cache);
  return places.normed_RD.narrow(0, 0, static_cast<std::int64_t>(rows.size()));
}

std::uint64_t GpuDecoder::num_bytes() const {
  std::uint64_t bytes = partial_.defined() ? partial_.nbytes() : 0;
  for (const at::Tensor& place : work_) bytes += place.nbytes();
  bytes += fp8_.num_bytes() + latent_.num_bytes() + experts_.num_bytes();
  for (const auto& [size, places] : places_) bytes += places->inputs.nbytes();
  return bytes;
}

}  // namespace magister::gpu
