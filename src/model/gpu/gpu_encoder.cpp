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
#include "model/gpu/encoder_attention_kernel.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/mlp_kernels.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

// The table of distances grows in steps of this number of tokens, so that few passes make it anew.
constexpr std::int64_t kDistanceStep = 512;
static_assert(kDistanceStep % EncoderAttention<true>::kTile == 0);

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

at::Tensor encoder_blocks(const PackedBatch& batch) {
  std::vector<std::int32_t> numbers;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    for (std::int64_t first = 0; first < length; first += EncoderAttention<true>::kTile)
      for (const std::int64_t number : {begin, length, first}) numbers.push_back(static_cast<std::int32_t>(number));
  }
  return at::tensor(numbers, at::kInt).view({-1, 3});
}

std::uint64_t gpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens) {
  if (num_tokens == 0) return 0;
  const std::int64_t D = config.hidden_size, F = config.intermediate_size, N = 2 * config.encoder->relative_span,
                     T = num_tokens;
  // The stream with q, k, v and outputs of attention, or with the columns of the MLP and its outputs; ids, rows of
  // positions, and a block of queries for each token if sequences are that short.
  const std::int64_t tokens = T * (std::max(5 * D, 2 * D + F) + 2 + 3);
  // The products of the relative position vectors for each layer, one of them while it is made, and the table of
  // distances, for one sequence may have all tokens.
  const std::int64_t relative = N > 0 ? N * (2 * D * config.num_hidden_layers + 3 * D) + 2 * reached_by(T) : 0;
  // The last rows of a product, in a tile of their own.
  const std::int64_t tile = kPassTile * (std::max(D, F) + std::max(3 * D, F));
  return sizeof(float) * static_cast<std::uint64_t>(tokens + relative + tile);
}

GpuEncoder::GpuEncoder(std::shared_ptr<const GpuEncoderWeights> weights, const Queue& queue)
    : EncoderBackend(weights->all),
      at_the_end_{queue},
      held_(std::move(weights)),
      queue_(queue),
      lm_head_(weights_.head) {
  lm_head_.queue = queue;
  if (!weights_.relative_ND.defined()) return;
  for (const GpuEncoderWeights::Layer& layer : held_->layers)
    relative_NX_.push_back(
        product_of(layer.qkv, weights_.relative_ND).narrow(1, 0, 2 * config_.hidden_size).contiguous());
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

EncoderBackend::Pass GpuEncoder::begin_pass(const PackedBatch& batch, std::int64_t longest) {
  const at::Device device = device_of(queue_);
  if (!relative_NX_.empty() && reach_ < longest) {
    reach_ = reached_by(longest);
    vectors_ = upload(vectors_of(*config_.encoder, at::arange(1 - reach_, reach_, at::kLong)).to(at::kInt), device);
  }
  return {.batch = batch, .blocks_B3 = upload(encoder_blocks(batch), device)};
}

void GpuEncoder::start_attention(std::size_t layer, const Pass& pass, const at::Tensor& qkv_TX,
                                 const at::Tensor& context_TD) const {
  const EncoderConfig& encoder = *config_.encoder;
  EncoderAttentionArguments arguments{data<float>(qkv_TX),
                                      static_cast<const EncoderBlock*>(pass.blocks_B3.const_data_ptr()),
                                      data<float>(context_TD),
                                      static_cast<int>(pass.blocks_B3.size(0)),
                                      static_cast<int>(config_.num_attention_heads),
                                      static_cast<int>(config_.head_dim),
                                      static_cast<float>(attention_scale(encoder, config_.head_dim))};
  if (relative_NX_.empty()) return start(EncoderAttention<false>{arguments}, queue_);
  arguments.relative_NX = data<float>(relative_NX_[layer]);
  arguments.vectors = vectors_.const_data_ptr<std::int32_t>() + reach_ - 1;
  arguments.content_to_position = encoder.content_to_position;
  arguments.position_to_content = encoder.position_to_content;
  start(EncoderAttention<true>{arguments}, queue_);
}

at::Tensor GpuEncoder::attend(std::size_t layer, const Pass& pass, const at::Tensor& hidden_TD) const {
  const at::Tensor context_TD = at::empty_like(hidden_TD);
  start_attention(layer, pass, product_of(held_->layers[layer].qkv, hidden_TD), context_TD);
  return product_of(held_->layers[layer].output, context_TD);
}

void GpuEncoder::run_layer(std::size_t layer, const Pass& pass, at::Tensor& hidden_TD) const {
  const EncoderWeights::Layer& norms = weights_.layers[layer];
  add_and_norm(hidden_TD, attend(layer, pass, hidden_TD), norms.attention_norm);
  const at::Tensor up_TF = product_of(held_->layers[layer].up, hidden_TD);
  // In place: a thread reads a number before it writes it.
  const ActivateRows<float> kernel{data<float>(up_TF), data<float>(up_TF), up_TF.size(1),
                                   MlpFunction{.activation = config_.activation, .gated = false}};
  launch(kernel, kernel.shape(up_TF.size(0)), queue_);
  add_and_norm(hidden_TD, product_of(held_->layers[layer].down, up_TF), norms.mlp_norm);
}

at::Tensor GpuEncoder::plain_attention(const at::Tensor& qkv_LX) const {
  const std::int64_t D = config_.hidden_size, H = config_.num_attention_heads, E = config_.head_dim, L = qkv_LX.size(0);
  // Columns of a product as one of the parts of its heads, [H, rows, E].
  const auto heads_of = [&](const at::Tensor& x_RX, std::int64_t which) {
    return x_RX.defined() ? x_RX.narrow(1, which * D, D).view({-1, H, E}).transpose(0, 1) : x_RX;
  };
  const at::Tensor relative_NX = relative_NX_.empty() ? at::Tensor() : relative_NX_.front();
  const EncoderHeads heads{heads_of(qkv_LX, 0), heads_of(qkv_LX, 1), heads_of(qkv_LX, 2), heads_of(relative_NX, 0),
                           heads_of(relative_NX, 1)};
  at::Tensor vectors_LL = vectors_between(*config_.encoder, L);
  if (vectors_LL.defined()) vectors_LL = upload(vectors_LL, device_of(queue_));
  return encoder_attention(*config_.encoder, heads, vectors_LL).transpose(0, 1).reshape({L, D});
}

at::Tensor GpuEncoder::plain_layer(const PackedBatch& batch, const at::Tensor& block_TD) const {
  const EncoderWeights::Layer& layer = weights_.layers.front();
  const auto product = [](const at::Tensor& x, const Linear& linear) {
    return at::linear(x, linear.weight_NK, linear.bias_N);
  };
  const at::Tensor qkv_TX = product(block_TD, layer.qkv), context_TD = at::empty_like(block_TD);
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    context_TD.narrow(0, begin, length).copy_(plain_attention(qkv_TX.narrow(0, begin, length)));
  }
  const at::Tensor hidden_TD =
      encoder_norm(block_TD + product(context_TD, layer.output), layer.attention_norm, config_);
  const at::Tensor up_TF = activated(product(hidden_TD, layer.up), config_.activation);
  return encoder_norm(hidden_TD + product(up_TF, layer.down), layer.mlp_norm, config_);
}

void GpuEncoder::self_test() {
  // A text of one tile of keys, and one of three of which the last is partial. Layers do not read the ids.
  const PackedBatch batch = pack_sequences({std::vector<TokenId>(5), std::vector<TokenId>(150)});
  const Pass pass = begin_pass(batch, batch.num_tokens());
  const at::Tensor block_TD = self_test_block(batch.num_tokens(), config_.hidden_size).to(device_of(queue_));
  const at::Tensor wanted_TD = plain_layer(batch, block_TD);
  at::Tensor hidden_TD = block_TD.clone();
  run_layer(0, pass, hidden_TD);
  compare_paths("layer of an encoder", hidden_TD, wanted_TD, 1e-4,
                queue_.on_host() ? "of the GPU on the host" : "of the GPU");
}

}  // namespace magister::gpu
