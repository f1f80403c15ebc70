// Weights and sizes of latent attention on a GPU: what a shard holds, and the memory of passes and of decoding rows.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "magister/core/error.h"
#include "model/gpu/gpu_indexer.h"

namespace magister::gpu {
namespace {

// Multiprocessors of compute capability 8.6 and 8.9 have the least shared memory of those with bf16.
constexpr std::size_t kMostShared = 99 << 10;

// up_NC: [H (N + V), C] in the activations' dtype.
void set_up_proj(GpuLatent& latent, const at::Tensor& up_NC, const LayerShape& shape, const GpuWeights& weights) {
  const LatentConfig& config = *shape.latent;
  latent.up_proj.weight_NK = up_NC;
  latent.up_proj.outputs = up_NC.size(0);
  latent.up_proj.inputs = up_NC.size(1);
  if (latent_kernels_take(weights.config, weights.dtype))
    latent.key_up_HCN =
        up_NC.view({shape.heads, -1, config.rank}).narrow(1, 0, config.nope_dim).transpose(1, 2).contiguous();
}

// Numbers of a row in LatentPlaces, in its order.
std::array<std::int64_t, 5> place_numbers(const LayerShape& shape) {
  const LatentConfig& latent = *shape.latent;
  const std::int64_t H = shape.heads;
  return {latent.query_rank, latent.token_width(), latent.query_rank > 0 ? H * shape.head_dim : 0,
          H * latent.token_width(), H * latent.rank};
}

}  // namespace

bool absorbs_latents(const ModelConfig& config, at::ScalarType activations) {
  return latent_kernels_take(config, activations) && !config.latent->indexer;
}

bool latent_kernels_take(const ModelConfig& config, at::ScalarType activations) {
  if (!config.latent || activations != at::kBFloat16) return false;
  const LatentConfig& latent = *config.latent;
  return latent.nope_dim > 0 && latent.rank % 8 == 0 && latent.rope_dim % 8 == 0 &&
         latent.rank <= LatentAttention::kMostRank &&
         LatentAttention::shared_bytes(static_cast<int>(latent.token_width())) <= kMostShared;
}

GpuLatent load_latent(WeightSource& source, std::int64_t layer, const LayerShape& shape, const GpuWeights& weights,
                      const std::function<GpuLinear(const Linear&)>& make) {
  GpuLatent latent;
  if (shape.latent->query_rank > 0) latent.q_up_proj = make(source.load_q_up_proj(layer));
  set_up_proj(latent, source.load_latent_up_proj(layer).to(weights.device, weights.dtype), shape, weights);
  if (shape.has_indexer) latent.indexer = load_indexer(source, layer, weights, make);
  return latent;
}

GpuLatent random_latent(const LayerShape& shape, const GpuWeights& weights,
                        const std::function<GpuLinear(std::int64_t, std::int64_t, bool)>& make) {
  const LatentConfig& config = *shape.latent;
  GpuLatent latent;
  if (config.query_rank > 0) latent.q_up_proj = make(shape.heads * shape.head_dim, config.query_rank, true);
  const std::int64_t U = shape.heads * (config.nope_dim + config.value_dim);
  set_up_proj(latent, make(U, config.rank, false).weight_NK, shape, weights);
  if (shape.has_indexer) latent.indexer = random_indexer(weights, make);
  return latent;
}

std::int64_t short_numbers(const LayerShape& shape) {
  const LatentConfig& latent = *shape.latent;
  return (latent.query_rank > 0 ? latent.query_rank : shape.heads * shape.head_dim) + latent.token_width();
}

std::uint64_t other_latent_bytes(const GpuLatent& latent) {
  const std::uint64_t bytes = bytes_of({latent.key_up_HCN});
  if (!latent.indexer) return bytes;
  return bytes + latent.indexer->head_proj.num_bytes() +
         bytes_of({latent.indexer->norm_E, latent.indexer->norm_bias_E});
}

LatentPlaces::LatentPlaces(const LayerShape& shape, std::int64_t rows, at::Device device) {
  const LatentConfig& latent = *shape.latent;
  const auto numbers = place_numbers(shape);
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  if (latent.query_rank > 0) {
    queries_RL = at::empty({rows, numbers[0]}, options);
    q_RQ = at::empty({rows, numbers[2]}, options);
  }
  tokens_RW = at::empty({rows, numbers[1]}, options);
  q_RHW = at::empty({rows, shape.heads, latent.token_width()}, options);
  sums_RHC = at::empty({rows, shape.heads, latent.rank}, options);
}

LatentPlaces LatentPlaces::first(std::int64_t rows) const {
  const auto of = [rows](const at::Tensor& place) { return place.defined() ? place.narrow(0, 0, rows) : place; };
  LatentPlaces part;
  part.queries_RL = of(queries_RL);
  part.tokens_RW = of(tokens_RW);
  part.q_RQ = of(q_RQ);
  part.q_RHW = of(q_RHW);
  part.sums_RHC = of(sums_RHC);
  return part;
}

std::uint64_t LatentPlaces::num_bytes() const { return bytes_of({queries_RL, tokens_RW, q_RQ, q_RHW, sums_RHC}); }

std::int64_t LatentPlaces::bytes_of_row(const LayerShape& shape) {
  std::int64_t bytes = 0;
  for (const std::int64_t numbers : place_numbers(shape)) bytes += 2 * numbers;
  return bytes;
}

std::int64_t latent_scratch(std::int64_t rows, const LayerShape& shape, std::int64_t chunks) {
  return rows * shape.heads * chunks * (shape.latent->rank + 2);
}

std::int64_t latent_pass_numbers(const LayerShape& shape) {
  const LatentConfig& latent = *shape.latent;
  const std::int64_t H = shape.heads, X = expanded_shape(shape).head_dim, V = latent.value_dim;
  // Queries, keys and values of padded heads; before them the product that makes them, after them keys and values of
  // shared prefixes, attention's outputs, and the same without zeros.
  return short_numbers(shape) + latent.query_rank + 2 * latent.token_width() + 3 * H * X +
         std::max(H * (latent.nope_dim + V), 3 * H * X + H * V);
}

std::int64_t latent_gathered_numbers(const LayerShape& shape) {
  const LatentConfig& latent = *shape.latent;
  return latent.token_width() + latent.rank +
         shape.heads * (latent.nope_dim + latent.value_dim + 2 * expanded_shape(shape).head_dim);
}

std::uint64_t latent_decoding_bytes(const LayerShape& shape, std::int64_t rows, std::int64_t sequence_tokens) {
  const std::int64_t pages = (sequence_tokens + KvPages::kSlots - 1) / KvPages::kSlots,
                     a_row = LatentPlaces::bytes_of_row(shape) + 2 * shape.heads * shape.value_dim() + 4 * (2 + pages);
  return static_cast<std::uint64_t>(rows * a_row) +
         sizeof(float) * static_cast<std::uint64_t>(latent_scratch(rows, shape, latent_chunks(sequence_tokens)));
}

}  // namespace magister::gpu
