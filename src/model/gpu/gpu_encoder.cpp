// The pass of an encoder on a GPU; see gpu_encoder.h.
#include "model/gpu/gpu_encoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/device/staged_upload.h"
#include "magister/device/upload.h"
#include "magister/model/plain_activation.h"
#include "magister/parallel/thread_pool.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/mlp_kernels.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

// Tables of distances grow in steps of so many tokens, so that few passes make them anew.
constexpr std::int64_t kDistanceStep = 128;

std::int64_t reached_by(std::int64_t length) { return (length + kDistanceStep - 1) / kDistanceStep * kDistanceStep; }

// All layers have products of the same shapes.
void choose_products(GpuEncoderWeights& weights, const Queue& queue) {
  using Layer = GpuEncoderWeights::Layer;
  for (GpuLinear Layer::* one : {&Layer::qkv, &Layer::output, &Layer::up, &Layer::down}) {
    GpuLinear& first = weights.layers.front().*one;
    find_tile_sizes(first, at::kFloat, queue);
    for (Layer& layer : weights.layers) {
      (layer.*one).fixed = first.fixed;
      (layer.*one).pass_tiles = first.pass_tiles;
    }
  }
}

}  // namespace

std::shared_ptr<const GpuEncoderWeights> load_gpu_encoder(const ModelDescription& description, const TensorFile& file,
                                                          ThreadPool& pool, const Queue& queue, const LoadHook& hook) {
  const at::Device device = device_of(queue);
  WeightSource source(file, description, partition_for(description.config, 0, 1), 0, at::kFloat, {}, &pool, hook);
  StagedUpload upload(device, pool.num_threads());
  source.send_to(upload);
  const auto weights = shared_on_device(GpuEncoderWeights(), queue);
  weights->all = load_encoder_weights(
      source, description, [&](const at::Tensor& tensor) { return tensor.to(device); },
      [&](const Linear& plain) { return Linear{plain.weight_NK.to(device), on_device(plain.bias_N, device)}; });
  for (const EncoderWeights::Layer& layer : weights->all.layers)
    weights->layers.push_back({to_device(layer.qkv, device), to_device(layer.output, device),
                               to_device(layer.up, device), to_device(layer.down, device)});
  weights->pooler = to_device(weights->all.pooler, device);
  weights->head = to_device(weights->all.head.projection, device);
  choose_products(*weights, queue);
  return weights;
}

std::int64_t encoder_heads_at_once(std::int64_t H, std::int64_t L, std::int64_t N) {
  return std::clamp<std::int64_t>(kEncoderScores / (L * std::max(L, N)), 1, H);
}

std::uint64_t gpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens) {
  if (num_tokens == 0) return 0;
  const std::int64_t D = config.hidden_size, F = config.intermediate_size, H = config.num_attention_heads,
                     N = 2 * config.encoder->relative_span, T = num_tokens,
                     L = config.learned_positions ? std::min(T, config.max_position_embeddings) : T,
                     reach = reached_by(L);
  // Before attention's product: the stream, q, k and v of all tokens, the outputs, and q, k and v of a sequence with
  // its outputs, twice for the order of their numbers.
  const std::int64_t tokens = T * std::max(5 * D, 2 * D + F) + 5 * L * D;
  // Scores, those with distances before and after they are gathered, and the softmax.
  const std::int64_t scores = (N > 0 ? 4 : 2) * encoder_heads_at_once(H, L, N) * L * std::max(L, N);
  const std::int64_t relative = N * (2 * D * config.num_hidden_layers + 3 * D),
                     tile = kPassTile * (std::max(D, F) + std::max(3 * D, F));
  // ids and rows of positions; tables of distances while they are made.
  return sizeof(float) * static_cast<std::uint64_t>(tokens + scores + relative + tile) +
         static_cast<std::uint64_t>(8 * T) +
         (N > 0 ? 2 * sizeof(std::int64_t) : 0) * static_cast<std::uint64_t>(reach * reach);
}

GpuEncoder::GpuEncoder(std::shared_ptr<const GpuEncoderWeights> weights, const Queue& queue)
    : EncoderBackend(weights->all),
      at_the_end_{queue},
      held_(std::move(weights)),
      queue_(queue),
      lm_head_(weights_.head) {
  lm_head_.queue = queue;
  if (!weights_.relative_ND.defined()) return;
  const std::int64_t N = weights_.relative_ND.size(0), H = config_.num_attention_heads, E = config_.head_dim;
  for (const GpuEncoderWeights::Layer& layer : held_->layers)
    relative_2HNE_.push_back(product_of(layer.qkv, weights_.relative_ND)
                                 .view({N, 3, H, E})
                                 .permute({1, 2, 0, 3})
                                 .narrow(0, 0, 2)
                                 .clone(at::MemoryFormat::Contiguous));
}

at::Tensor GpuEncoder::product_of(const GpuLinear& linear, const at::Tensor& x_TK) const {
  return product_in_tiles(linear, x_TK, linear.pass_tiles, queue_);
}

at::Tensor GpuEncoder::pooler_product(const at::Tensor& hidden_RD) const {
  return product(held_->pooler, hidden_RD, at::kFloat, queue_);
}

at::Tensor GpuEncoder::head_product(const at::Tensor& pooled_RD) const {
  return product(held_->head, pooled_RD, at::kFloat, queue_);
}

void GpuEncoder::add_and_norm(const at::Tensor& hidden_TD, const at::Tensor& delta_TD, const Norm& norm) const {
  const AddLayerNorm<float> kernel{data<float>(hidden_TD),     data<float>(delta_TD),
                                   data<float>(norm.weight_D), data<float>(hidden_TD),
                                   config_.hidden_size,        static_cast<float>(config_.rms_norm_eps),
                                   data<float>(norm.bias_D)};
  launch(kernel, kernel.shape(hidden_TD.size(0)), queue_);
}

at::Tensor GpuEncoder::embed(const PackedBatch& batch, const at::Tensor& positions_T) const {
  const at::Device device = device_of(queue_);
  const at::Tensor ids_T = upload(batch.token_ids_T, device),
                   rows_T = weights_.positions_PD.defined() ? upload(positions_T, device) : at::Tensor();
  const at::Tensor hidden_TD = embedding_sum(weights_, ids_T, rows_T);
  add_and_norm(hidden_TD, {}, weights_.embed_norm);
  return hidden_TD;
}

EncoderDistances GpuEncoder::distances_up_to(std::int64_t length) {
  if (reach_ >= length) return distances_;
  distances_ = {};
  const EncoderDistances made = encoder_distances(*config_.encoder, reached_by(length));
  const at::Device device = device_of(queue_);
  if (config_.encoder->content_to_position)
    distances_.content_to_position_LL = upload(made.content_to_position_LL, device);
  if (config_.encoder->position_to_content)
    distances_.position_to_content_LL = upload(made.position_to_content_LL, device);
  reach_ = reached_by(length);
  return distances_;
}

void GpuEncoder::attend_sequence(std::size_t layer, const at::Tensor& qkv_LX, const EncoderDistances& distances,
                                 const at::Tensor& context_LD) const {
  const std::int64_t H = config_.num_attention_heads, E = config_.head_dim, L = qkv_LX.size(0);
  // Memory of its own: a product's order of sums may depend on the addresses of its operands.
  const at::Tensor qkv_3HLE = qkv_LX.view({L, 3, H, E}).permute({1, 2, 0, 3}).clone(at::MemoryFormat::Contiguous);
  const std::int64_t most = encoder_heads_at_once(H, L, 2 * config_.encoder->relative_span);
  for (std::int64_t first = 0; first < H; first += most) {
    const std::int64_t count = std::min(most, H - first);
    const auto part = [&](const at::Tensor& all, std::int64_t which) { return all[which].narrow(0, first, count); };
    EncoderHeads heads{part(qkv_3HLE, 0), part(qkv_3HLE, 1), part(qkv_3HLE, 2), {}, {}};
    if (!relative_2HNE_.empty()) {
      heads.distance_q_NE = part(relative_2HNE_[layer], 0);
      heads.distance_k_NE = part(relative_2HNE_[layer], 1);
    }
    context_LD.view({L, H, E})
        .narrow(1, first, count)
        .copy_(encoder_attention(*config_.encoder, heads, distances).transpose(0, 1));
  }
}

at::Tensor GpuEncoder::attend(std::size_t layer, const PackedBatch& batch, const EncoderDistances& distances,
                              const at::Tensor& hidden_TD) const {
  const at::Tensor context_TD = at::empty_like(hidden_TD);
  {
    const at::Tensor qkv_TX = product_of(held_->layers[layer].qkv, hidden_TD);
    for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
      const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
      if (length > 0)
        attend_sequence(layer, qkv_TX.narrow(0, begin, length), distances, context_TD.narrow(0, begin, length));
    }
  }
  return product_of(held_->layers[layer].output, context_TD);
}

void GpuEncoder::run_layer(std::size_t layer, const PackedBatch& batch, const EncoderDistances& distances,
                           at::Tensor& hidden_TD) const {
  const EncoderWeights::Layer& norms = weights_.layers[layer];
  add_and_norm(hidden_TD, attend(layer, batch, distances, hidden_TD), norms.attention_norm);
  const at::Tensor up_TF = product_of(held_->layers[layer].up, hidden_TD);
  // In place: a thread reads a number before it writes it.
  const ActivateRows<float> kernel{data<float>(up_TF), data<float>(up_TF), up_TF.size(1),
                                   MlpFunction{.activation = config_.activation, .gated = false}};
  launch(kernel, kernel.shape(up_TF.size(0)), queue_);
  add_and_norm(hidden_TD, product_of(held_->layers[layer].down, up_TF), norms.mlp_norm);
}

// The first layer, with other products, norms and activation.
at::Tensor GpuEncoder::plain_layer(const PackedBatch& batch, const at::Tensor& block_TD) {
  const EncoderWeights::Layer& layer = weights_.layers.front();
  const auto product = [](const at::Tensor& x, const Linear& linear) {
    return at::linear(x, linear.weight_NK, linear.bias_N);
  };
  const at::Tensor qkv_TX = product(block_TD, layer.qkv), context_TD = at::empty_like(block_TD);
  const EncoderDistances distances = config_.encoder->relative_span > 0 ? distances_up_to(64) : EncoderDistances();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    attend_sequence(0, qkv_TX.narrow(0, begin, length), distances, context_TD.narrow(0, begin, length));
  }
  const at::Tensor hidden_TD =
      encoder_norm(block_TD + product(context_TD, layer.output), layer.attention_norm, config_);
  const at::Tensor up_TF = activated(product(hidden_TD, layer.up), config_.activation);
  return encoder_norm(hidden_TD + product(up_TF, layer.down), layer.mlp_norm, config_);
}

void GpuEncoder::self_test() {
  const PackedBatch batch = self_test_batch(config_.vocab_size);
  const at::Tensor block_TD = self_test_block(batch.num_tokens(), config_.hidden_size).to(device_of(queue_));
  const at::Tensor wanted_TD = plain_layer(batch, block_TD);
  at::Tensor hidden_TD = block_TD.clone();
  run_layer(0, batch, distances_, hidden_TD);
  compare_paths("layer of an encoder", hidden_TD, wanted_TD, 1e-4,
                queue_.on_host() ? "of the GPU on the host" : "of the GPU");
}

}  // namespace magister::gpu
