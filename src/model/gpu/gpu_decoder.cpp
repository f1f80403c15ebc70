// One decoding pass as a fixed list of kernels over fixed places.
#include "model/gpu/gpu_decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "magister/device/cuda_graph.h"
#include "magister/device/gpu.h"
#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "model/gpu/attention.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace {

static_assert(kGpuDecodingRows == kPromptTile && kGpuDecodingRows == kMostDecodeRows);
constexpr std::int64_t kPagesAChunk = kAttentionChunk / KvPages::kSlots;

// Few enough graphs, and at most a third of the rows idle.
constexpr std::int64_t kSmallBuckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
std::int64_t bucket_of(std::int64_t rows) {
  for (const std::int64_t bucket : kSmallBuckets) {
    if (rows <= bucket) return bucket;
  }
  return (rows + 63) / 64 * 64;
}

std::int64_t next_power_of_two(std::int64_t number) {
  std::int64_t power = 1;
  while (power < number) power *= 2;
  return power;
}

// Whether the decode kernels take the model's heads; of experts the host must read the choice in every layer.
bool kernels_take(const LayerShape& shape, at::ScalarType activations) {
  return activations == at::kBFloat16 && groups_are_even(shape) && shape.head_dim % 2 == 0 &&
         shape.head_dim <= kMostHeadDim && shape.num_experts == 0;
}

// Of the inputs of a pass.
std::int64_t bytes_of_inputs(std::int64_t rows, std::int64_t chunks) {
  return rows * (8 + 4 * (4 + kPagesAChunk * chunks));
}

// Numbers of a row in every place that passes work in, in the order of Places, and their types.
std::array<std::pair<at::ScalarType, std::int64_t>, 7> work_places(std::int64_t D, const LayerShape& shape) {
  return {{{at::kFloat, D},
           {at::kBFloat16, D},
           {at::kBFloat16, shape.qkv_features()},
           {at::kBFloat16, shape.heads * shape.head_dim},
           {at::kFloat, D},  // what joins the residual stream, or the group adds, is not rounded: it is small here
           {at::kBFloat16, 2 * shape.mlp},
           {at::kBFloat16, shape.mlp}}};
}

}  // namespace

// Whose pointers a graph holds. By number and not by address: what is made anew may stand where the old stood, in whole or in part.
struct GpuDecoder::Memory {
  std::uint64_t cache = 0, rope = 0, partial = 0;
  bool operator==(const Memory&) const = default;
};

struct GpuDecoder::Places {
  std::int64_t rows = 0, chunks = 0;
  // Inputs, one block of bytes: slots i64 [R], then i32: ids, rotary rows, sequences, visible keys [R] each, page table [R, 4 C].
  at::Tensor staging, inputs;
  at::Tensor slots_R, ids_R, rope_rows_R, sequence_R, visible_R, table_RP;
  at::Tensor hidden_RD, normed_RD, qkv_RQ, attention_RA, delta_RD, gate_up_RF2,
      middle_RF;    // the first rows of the work places
  GpuEvent copied;  // staging may be filled again
  CudaGraph graph;
  Memory captured_with;
  int runs = 0;
};

GpuDecoder::GpuDecoder(const GpuWeights& weights, RopeOnDevice& rope, ProcessGroup& group, const Queue& queue)
    : weights_(weights), rope_(rope), group_(group), queue_(queue) {
  works_ = kernels_take(weights.layers.front().shape, weights.dtype);
  const char* wanted = std::getenv("MAGISTER_CUDA_GRAPHS");
  graphs_ = wanted == nullptr || std::string_view(wanted) != "0";
}
GpuDecoder::~GpuDecoder() = default;

GpuDecoder::Places& GpuDecoder::places_of(std::int64_t rows, std::int64_t chunks) {
  if (const auto known = places_.find({rows, chunks}); known != places_.end()) return *known->second;
  auto places = std::make_unique<Places>();  // kept when it is whole: there may be no memory for it
  places->rows = rows;
  places->chunks = chunks;
  const LayerShape& shape = weights_.layers.front().shape;
  const std::int64_t bytes = bytes_of_inputs(rows, chunks);
  places->staging = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!queue_.on_host()));
  places->inputs = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(weights_.device));
  places->slots_R = places->inputs.narrow(0, 0, 8 * rows).view(at::kLong);
  const at::Tensor words = places->inputs.narrow(0, 8 * rows, bytes - 8 * rows).view(at::kInt);
  at::Tensor* const columns[] = {&places->ids_R, &places->rope_rows_R, &places->sequence_R, &places->visible_R};
  for (std::int64_t i = 0; i < 4; ++i) *columns[i] = words.narrow(0, i * rows, rows);
  places->table_RP = words.narrow(0, 4 * rows, rows * kPagesAChunk * chunks).view({rows, -1});
  const auto work = work_places(weights_.config.hidden_size, shape);
  at::Tensor* const into[] = {&places->hidden_RD, &places->normed_RD,   &places->qkv_RQ,   &places->attention_RA,
                              &places->delta_RD,  &places->gate_up_RF2, &places->middle_RF};
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto options = at::TensorOptions().dtype(work[i].first).device(weights_.device);
    if (work_.size() == i) work_.push_back(at::empty({kGpuDecodingRows, work[i].second}, options));
    *into[i] = work_[i].narrow(0, 0, rows);
  }
  return *(places_[{rows, chunks}] = std::move(places));
}

void GpuDecoder::fill_inputs(Places& places, const std::vector<Row>& rows, std::int64_t trash_slot) {
  group_.wait_for(places.copied);
  const std::int64_t R = places.rows, stride = kPagesAChunk * places.chunks;
  auto* slots = reinterpret_cast<std::int64_t*>(places.staging.data_ptr<std::uint8_t>());
  auto* words = reinterpret_cast<std::int32_t*>(slots + R);
  std::fill(words, words + R * (4 + stride),
            0);  // idle rows see no key, and their own goes to a page that nobody reads
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

void GpuDecoder::sum(at::Tensor& partial) {
  if (group_.tp_size() > 1) group_.all_reduce_sum(partial);
}

void GpuDecoder::queue_product(const GpuLinear& linear, const ProductRows& x_RK, at::Tensor& out_RN,
                               const Queue& queue) {
  if (!linear.fp8_NK.defined()) return product_of_few(linear, x_RK.x_MK, out_RN, queue);
  out_RN.copy_(product_in_tiles(linear, x_RK, linear.prompt_tiles, queue));
}

void GpuDecoder::queue_norm_on_delta(Places& places, const BlockNorms* of, const Queue& queue) {
  if (of == nullptr || !of->output_D.defined()) return;
  const NormRows<float> on_delta{data<float>(places.delta_RD), data<float>(of->output_D), weights_.config.hidden_size,
                                 static_cast<float>(weights_.config.rms_norm_eps)};
  launch(on_delta, on_delta.shape(places.rows), queue);
}

ProductRows GpuDecoder::queue_norm_for(const GpuLinear& next, Places& places, const BlockNorms* of,
                                       const at::Tensor& weight_D, const Queue& queue) {
  if (!next.fp8_NK.defined() || weights_.config.norm_kind == NormKind::kLayer) {
    queue_norm(places, of, weight_D, queue);
    return {places.normed_RD};
  }
  queue_norm_on_delta(places, of, queue);
  const std::int64_t D = weights_.config.hidden_size;
  ProductRows rows = ProductRows::empty_fp8(places.rows, D, weights_.device);
  const NormQuantize<float> kernel{data<float>(places.hidden_RD),
                                   of != nullptr ? data<float>(places.delta_RD) : nullptr,
                                   data<float>(weight_D),
                                   data<std::uint8_t>(rows.bytes_MK),
                                   data<float>(rows.scale_M1),
                                   D,
                                   static_cast<float>(weights_.config.rms_norm_eps)};
  launch(kernel, kernel.shape(places.rows), queue);
  return rows;
}

void GpuDecoder::queue_norm(Places& places, const BlockNorms* of, const at::Tensor& weight_D, const Queue& queue) {
  queue_norm_on_delta(places, of, queue);
  add_norm<Bf16>(weights_, places.hidden_RD, of != nullptr ? places.delta_RD : at::Tensor(), weight_D, places.normed_RD,
                 queue);
}

void GpuDecoder::queue_attention(Places& places, const GpuLayer& layer, const ProductRows& normed_RD,
                                 const at::Tensor& keys, const at::Tensor& values, const Queue& queue) {
  const LayerShape& shape = layer.shape;
  queue_product(layer.qkv_proj, normed_RD, places.qkv_RQ, queue);
  rotate_heads<Bf16>(layer, group_, places.qkv_RQ, rope_.cos(shape.rope_table), rope_.sin(shape.rope_table),
                     places.rope_rows_R, keys, values, places.slots_R, queue);
  paged_attention(paged_arguments<Bf16>(shape, places.qkv_RQ, keys, values, places.table_RP, places.sequence_R,
                                        places.visible_R, places.chunks, partial_, places.attention_RA),
                  queue);
  queue_product(layer.o_proj, {places.attention_RA}, places.delta_RD, queue);
}

// From gate and up on.
void GpuDecoder::queue_mlp(Places& places, const GpuLayer& layer, const Queue& queue) {
  const std::int64_t F = layer.shape.mlp;
  ProductRows middle_RF{places.middle_RF};
  if (layer.down_proj.fp8_NK.defined() && F <= GateQuantize::kMostColumns) {
    middle_RF = ProductRows::empty_fp8(places.rows, F, weights_.device);
    const GateQuantize gate{data<Bf16>(places.gate_up_RF2), data<std::uint8_t>(middle_RF.bytes_MK),
                            data<float>(middle_RF.scale_M1), F, layer.shape.activation};
    launch(gate, gate.shape(places.rows), queue);
  } else {
    const GateMultiply<Bf16> gate{data<Bf16>(places.gate_up_RF2), data<Bf16>(places.middle_RF), F,
                                  layer.shape.activation};
    launch(gate, gate.shape(places.rows), queue);
  }
  queue_product(layer.down_proj, middle_RF, places.delta_RD, queue);
}

void GpuDecoder::queue_pass(Places& places, KvCache& cache, const Queue& queue) {
  const EmbedRows<Bf16> embed{data<Bf16>(weights_.embedding_vD),
                              data<std::int32_t>(places.ids_R),
                              data<float>(places.hidden_RD),
                              weights_.config.hidden_size,
                              static_cast<std::int64_t>(weights_.partition.vocab.begin),
                              static_cast<std::int64_t>(weights_.partition.vocab.end),
                              weights_.embedding_scale()};
  launch(embed, embed.shape(places.rows), queue);
  sum(places.hidden_RD);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const GpuLayer& layer = weights_.layers[i];
    const ProductRows normed_RD =
        queue_norm_for(layer.qkv_proj, places, i > 0 ? &weights_.layers[i - 1].mlp_norms : nullptr,
                       layer.attention_norms.input_D, queue);
    queue_attention(places, layer, normed_RD, cache.keys[i], cache.values[i], queue);
    sum(places.delta_RD);
    if (weights_.config
            .parallel_residual) {  // the MLP reads what attention read, before its output joins the residual stream
      queue_product(layer.gate_up_proj, normed_RD, places.gate_up_RF2, queue);
      queue_norm(places, &layer.attention_norms, {}, queue);
    } else {
      queue_product(layer.gate_up_proj,
                    queue_norm_for(layer.gate_up_proj, places, &layer.attention_norms, layer.mlp_norms.input_D, queue),
                    places.gate_up_RF2, queue);
    }
    queue_mlp(places, layer, queue);
    sum(places.delta_RD);
  }
  queue_norm(places, &weights_.layers.back().mlp_norms, weights_.norm_D, queue);
}

at::Tensor GpuDecoder::forward(const std::vector<Row>& rows, KvCache& cache) {
  MAGISTER_ASSERT(!rows.empty() && static_cast<std::int64_t>(rows.size()) <= kGpuDecodingRows);
  std::int64_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.past + 1);
  rope_.reach(longest);
  Places& places =
      places_of(bucket_of(static_cast<std::int64_t>(rows.size())), next_power_of_two(attention_chunks(longest)));
  const LayerShape& shape = weights_.layers.front().shape;
  const std::int64_t numbers = attention_scratch(places.rows, shape.heads, places.chunks, shape.head_dim);
  if (!partial_.defined() || partial_.numel() < numbers) {
    partial_.reset();
    partial_ = at::empty({numbers}, places.hidden_RD.options());
    ++partial_generation_;
  }
  fill_inputs(places, rows, cache.num_pages * KvPages::kSlots);
  // The first pass runs kernel by kernel: a kernel's first start loads its code, which must not happen during a capture.
  const bool captures = graphs_ && !weights_.fp8 && group_.tp_size() == 1 && places.runs++ > 0;
  if (!captures) {
    queue_pass(places, cache, queue_);
  } else {
    const Memory memory{cache.generation, rope_.generation(), partial_generation_};
    if (!places.graph.is_captured() || places.captured_with != memory) {
      places.graph = CudaGraph::capture(queue_, [&](const Queue& queue) { queue_pass(places, cache, queue); });
      places.captured_with = memory;
    }
    places.graph.launch();
  }
  return places.normed_RD.narrow(0, 0, static_cast<std::int64_t>(rows.size()));
}

std::uint64_t GpuDecoder::num_bytes() const {
  std::uint64_t bytes = partial_.defined() ? partial_.nbytes() : 0;
  for (const at::Tensor& place : work_) bytes += place.nbytes();
  for (const auto& [size, places] : places_) bytes += places->inputs.nbytes();
  return bytes;
}

}  // namespace magister::gpu

namespace magister {

std::uint64_t gpu_decoding_bytes(const ModelConfig& config, const Partition& partition, std::int64_t sequence_tokens,
                                 at::ScalarType dtype) {
  const LayerShape shape = shape_of(config, partition, 0);
  if (sequence_tokens == 0 || !gpu::kernels_take(shape, activation_dtype(dtype))) return 0;
  const std::int64_t most_rows = kGpuDecodingRows,
                     most_chunks = gpu::next_power_of_two(gpu::attention_chunks(sequence_tokens));
  std::int64_t row = 0, inputs = 0;
  for (const auto& [type, numbers] : gpu::work_places(config.hidden_size, shape))
    row += numbers * static_cast<std::int64_t>(c10::elementSize(type));
  for (std::int64_t chunks = 1; chunks <= most_chunks; chunks *= 2) {
    for (const std::int64_t rows : gpu::kSmallBuckets) inputs += gpu::bytes_of_inputs(rows, chunks);
    for (std::int64_t rows = 128; rows <= most_rows; rows += 64) inputs += gpu::bytes_of_inputs(rows, chunks);
  }
  const std::int64_t sums = gpu::attention_scratch(most_rows, shape.heads, most_chunks, shape.head_dim);
  return static_cast<std::uint64_t>(most_rows * row + inputs) + static_cast<std::uint64_t>(sums) * sizeof(float);
}

}  // namespace magister
