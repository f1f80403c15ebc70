// Buffers of decoding passes (see decoder_places.h), and gpu_decoding_bytes(), which plans all of them.
#include "model/gpu/decoder_places.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "model/gpu/decoder_experts.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/latent_attention_kernels.h"

namespace magister::gpu {
namespace {

constexpr std::int64_t kSmallBuckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::int64_t kBucketStep = 32;  // above them, as rows of a block of CodeProduct

// Numbers per row of fp8 products: inputs after a norm, other inputs, and outputs before they become f32; in the order
// of Fp8Places.
std::array<std::int64_t, 3> fp8_places(const RowWidths& widths) {
  return {widths.hidden, std::max({widths.hidden, widths.attention, widths.mlp, widths.queries}), widths.hidden};
}
std::int64_t bytes_of_fp8_row(const RowWidths& widths) {
  const auto [normed, rows, rounded] = fp8_places(widths);
  return normed + 4 + rows + 4 + 2 * rounded;
}

}  // namespace

std::int64_t bucket_of(std::int64_t rows) {
  for (const std::int64_t bucket : kSmallBuckets) {
    if (rows <= bucket) return bucket;
  }
  return (rows + kBucketStep - 1) / kBucketStep * kBucketStep;
}

std::int64_t next_power_of_two(std::int64_t number) {
  std::int64_t power = 1;
  while (power < number) power *= 2;
  return power;
}

bool kernels_take(const ModelConfig& config, int tp_size, at::ScalarType activations) {
  // The decode kernels do not have the parts of gpu_stream.cpp.
  if (config.altup || config.laurel_rank > 0 || config.per_layer_width > 0 || !config.gate_sparsity.empty())
    return false;
  if (config.latent) return absorbs_latents(config, activations);
  const auto takes = [](std::int64_t size) { return size % 2 == 0 && size <= kMostHeadDim; };
  for (int shard = 0; shard < tp_size; ++shard) {
    const Partition partition = partition_for(config, shard, tp_size);
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const LayerShape shape = shape_of(config, partition, layer);
      if (!groups_are_even(shape) || !takes(shape.head_dim) || !takes(shape.value_dim()) || shape.clip_qkv > 0)
        return false;
    }
  }
  return activations == at::kBFloat16;
}

std::int64_t latent_chunks_of(std::int64_t chunks) { return latent_chunks(chunks * kAttentionChunk); }

std::int64_t partial_numbers(std::int64_t rows, const LayerShape& first, const RowWidths& widths, std::int64_t chunks) {
  return first.latent ? latent_scratch(rows, first, latent_chunks_of(chunks)) : rows * chunks * widths.sums;
}

std::int64_t bytes_of_inputs(std::int64_t rows, std::int64_t chunks) {
  return rows * (8 + 4 * (4 + kPagesAChunk * chunks));
}

RowWidths row_widths(const ModelConfig& config, const Partition& partition) {
  RowWidths most;
  most.hidden = config.hidden_size;
  const auto raise = [](std::int64_t& number, std::int64_t to) { number = std::max(number, to); };
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerShape shape = shape_of(config, partition, layer);
    raise(most.qkv, shape.latent ? short_numbers(shape) : shape.qkv_features());
    raise(most.queries, shape.latent ? shape.latent->query_rank : 0);
    raise(most.attention, shape.heads * shape.value_dim());
    raise(most.up, (shape.gated_mlp ? 2 : 1) * shape.mlp);
    raise(most.mlp, std::max(shape.mlp, shape.shared_mlp));
    if (repeated_keys(shape) > 0) raise(most.given, shape.qkv_features() - repeated_keys(shape));
    raise(most.gate, shape.gate_numbers);
    raise(most.squares, shape.all_heads > 0 ? 2 : 0);
    raise(most.sums, attention_scratch(1, shape.heads, 1, shape.value_dim()));
  }
  return most;
}

std::array<std::pair<at::ScalarType, std::int64_t>, 10> work_places(const RowWidths& widths) {
  return {{{at::kFloat, widths.hidden},
           {at::kBFloat16, widths.hidden},
           {at::kBFloat16, widths.qkv},
           {at::kBFloat16, widths.attention},
           // Outputs of a block stay f32 for the residual stream or the sum over shards; this buffer is small.
           {at::kFloat, widths.hidden},
           {at::kBFloat16, widths.up},
           {at::kBFloat16, widths.mlp},
           {at::kFloat, widths.squares},
           {at::kBFloat16, widths.given},
           {at::kBFloat16, widths.gate}}};
}

at::Tensor narrowed(const at::Tensor& rows, std::int64_t width) {
  const std::int64_t count = rows.size(0);
  return rows.size(1) == width ? rows : rows.view({-1}).narrow(0, 0, count * width).view({count, width});
}

Fp8Places::Fp8Places(const RowWidths& widths, at::Device device) {
  const auto [normed, rows, rounded] = fp8_places(widths);
  const auto zeros = [&](std::initializer_list<std::int64_t> size, at::ScalarType type) {
    return at::zeros(size, at::TensorOptions().dtype(type).device(device));
  };
  normed_TD = {{}, zeros({kGpuDecodingRows, normed}, at::kByte), zeros({kGpuDecodingRows, 1}, at::kFloat)};
  bytes = zeros({kGpuDecodingRows * rows}, at::kByte);
  scale_T1 = zeros({kGpuDecodingRows, 1}, at::kFloat);
  rounded_TD = zeros({kGpuDecodingRows, rounded}, at::kBFloat16);
}

ProductRows Fp8Places::rows_TK(std::int64_t K) const {
  return {{}, bytes.narrow(0, 0, kGpuDecodingRows * K).view({kGpuDecodingRows, K}), scale_T1};
}

ProductRows Fp8Places::first(const ProductRows& rows, std::int64_t count) {
  return {{}, rows.bytes_MK.narrow(0, 0, count), rows.scale_M1.narrow(0, 0, count)};
}

std::uint64_t Fp8Places::num_bytes() const {
  return bytes_of({normed_TD.bytes_MK, normed_TD.scale_M1, bytes, scale_T1, rounded_TD});
}

}  // namespace magister::gpu

namespace magister {

std::uint64_t gpu_decoding_bytes(const ModelConfig& config, const Partition& partition, int tp_size,
                                 std::int64_t sequence_tokens, at::ScalarType dtype) {
  if (sequence_tokens == 0 || !gpu::kernels_take(config, tp_size, activation_dtype(dtype))) return 0;
  const gpu::RowWidths widths = gpu::row_widths(config, partition);
  const std::int64_t most_rows = kGpuDecodingRows,
                     most_chunks = gpu::next_power_of_two(gpu::attention_chunks(sequence_tokens));
  std::int64_t row = 0, inputs = 0;
  for (const auto& [type, numbers] : gpu::work_places(widths))
    row += numbers * static_cast<std::int64_t>(c10::elementSize(type));
  if (dtype == at::kFloat8_e4m3fn) row += gpu::bytes_of_fp8_row(widths);
  const LayerShape first = shape_of(config, partition, 0);
  if (first.latent) row += gpu::LatentPlaces::bytes_of_row(first);
  for (std::int64_t chunks = 1; chunks <= most_chunks; chunks *= 2) {
    for (const std::int64_t rows : gpu::kSmallBuckets) inputs += gpu::bytes_of_inputs(rows, chunks);
    for (std::int64_t rows = gpu::bucket_of(*std::rbegin(gpu::kSmallBuckets) + 1); rows <= most_rows;
         rows += gpu::kBucketStep)
      inputs += gpu::bytes_of_inputs(rows, chunks);
  }
  const std::int64_t sums = gpu::partial_numbers(most_rows, first, widths, most_chunks);
  return static_cast<std::uint64_t>(most_rows * row + inputs) + static_cast<std::uint64_t>(sums) * sizeof(float) +
         gpu::DecoderExperts::planned_bytes(config, partition);
}

}  // namespace magister
