// The pass of an encoder on a CPU; see encoder_model.h.
#include "model/cpu/encoder_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/panel_memory.h"
#include "magister/model/plain_activation.h"
#include "model/cpu/layer_buffers.h"
#include "model/self_test.h"

namespace magister {
namespace {

constexpr std::int64_t kRows = LayerBuffers::kTileRows;

// Calls body(begin, end) for the fixed row tiles of `rows` rows on the pool's threads.
template <typename Body>
void for_tiles(ThreadPool& pool, std::int64_t rows, const Body& body) {
  on_threads(&pool, (rows + kRows - 1) / kRows,
             [&](std::int64_t tile) { body(tile * kRows, std::min((tile + 1) * kRows, rows)); });
}

}  // namespace

EncoderWeights load_cpu_encoder(const ModelDescription& description, const TensorFile& file, ThreadPool& pool,
                                const LoadHook& hook) {
  WeightSource source(file, description, partition_for(description.config, 0, 1), 0, at::kFloat, {}, &pool, hook);
  const PanelBlocks blocks;
  source.pack_products(nullptr);
  return load_encoder_weights(
      source, description, [](const at::Tensor& tensor) { return tensor; },
      [&](Linear plain) { return pack(std::move(plain), &pool); });
}

std::uint64_t cpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens, int num_threads) {
  const std::int64_t D = config.hidden_size, F = config.intermediate_size, N = 2 * config.encoder->relative_span,
                     T = num_tokens, L = config.learned_positions ? std::min(T, config.max_position_embeddings) : T;
  // The stream with q, k, v and outputs of attention, or with the columns of the MLP and its outputs; positions.
  const std::int64_t tokens = T * (std::max(5 * D, 2 * D + F) + 1);
  // Numbers of vectors for each pair of tokens, which have 8 bytes, and the product of the vectors.
  const std::int64_t relative = N > 0 ? 2 * L * L + 3 * N * D : 0;
  // Scores of a head twice: with those of distances, or with their softmax; a product with all vectors; outputs.
  const std::int64_t a_thread = L * (2 * L + std::max(N, config.head_dim));
  return sizeof(float) * static_cast<std::uint64_t>(tokens + relative + num_threads * a_thread);
}

void EncoderModel::add_and_norm(at::Tensor& hidden_TD, const at::Tensor& output_TD, const Norm& norm) const {
  for_tiles(pool_, hidden_TD.size(0), [&](std::int64_t begin, std::int64_t end) {
    at::Tensor rows = hidden_TD.narrow(0, begin, end - begin);
    rows.copy_(encoder_norm(rows + output_TD.narrow(0, begin, end - begin), norm, config_));
  });
}

at::Tensor EncoderModel::product(const at::Tensor& x_TK, const Linear& linear) const {
  const std::int64_t T = x_TK.size(0), K = x_TK.size(1), N = linear.out_features();
  at::Tensor out_TN = at::empty({T, N}, x_TK.options());
  const float* x = x_TK.const_data_ptr<float>();
  float* out = out_TN.data_ptr<float>();
  if (T <= kRows) {
    linear_tile(x, K, T, linear, out, N, false, &pool_);
    return out_TN;
  }
  for_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end) {
    linear_tile(x + begin * K, K, end - begin, linear, out + begin * N, N, false);
  });
  return out_TN;
}

at::Tensor EncoderModel::embed(const PackedBatch& batch, const at::Tensor& positions_T) const {
  at::Tensor hidden_TD = at::empty({batch.num_tokens(), config_.hidden_size}, weights_.words_VD.options());
  for_tiles(pool_, batch.num_tokens(), [&](std::int64_t begin, std::int64_t end) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    part(hidden_TD).copy_(encoder_norm(embedding_sum(weights_, part(batch.token_ids_T), part(positions_T)),
                                       weights_.embed_norm, config_));
  });
  return hidden_TD;
}

EncoderHeads EncoderModel::head_of(const at::Tensor& qkv_LX, const at::Tensor& distances_NX, std::int64_t head) const {
  const std::int64_t D = config_.hidden_size, E = config_.head_dim;
  const auto part = [&](const at::Tensor& x, std::int64_t which) {
    return x.defined() ? x.narrow(1, which * D + head * E, E) : x;
  };
  return {part(qkv_LX, 0), part(qkv_LX, 1), part(qkv_LX, 2), part(distances_NX, 0), part(distances_NX, 1)};
}

at::Tensor EncoderModel::attend(const Layer& layer, const Pass& pass, const at::Tensor& hidden_TD) const {
  const std::int64_t H = config_.num_attention_heads, E = config_.head_dim;
  const PackedBatch& batch = pass.batch;
  const at::Tensor context_TD = at::empty_like(hidden_TD);
  {
    const at::Tensor qkv_TX = product(hidden_TD, layer.qkv);
    const at::Tensor distances_NX =
        weights_.relative_ND.defined() ? product(weights_.relative_ND, layer.qkv) : at::Tensor();
    on_threads(&pool_, batch.num_sequences() * H, [&](std::int64_t tile) {
      const std::int64_t s = tile / H, head = tile % H, begin = batch.cu_seqlens[s];
      const std::int64_t length = batch.cu_seqlens[s + 1] - begin;
      const EncoderHeads one = head_of(qkv_TX.narrow(0, begin, length), distances_NX, head);
      context_TD.narrow(0, begin, length)
          .narrow(1, head * E, E)
          .copy_(encoder_attention(*config_.encoder, one, pass.vectors_LL));
    });
  }
  return product(context_TD, layer.output);
}

void EncoderModel::run_layer(std::size_t layer, const Pass& pass, at::Tensor& hidden_TD) const {
  const Layer& weights = weights_.layers[layer];
  add_and_norm(hidden_TD, attend(weights, pass, hidden_TD), weights.attention_norm);
  at::Tensor up_TF = product(hidden_TD, weights.up);
  for_tiles(pool_, up_TF.size(0), [&](std::int64_t begin, std::int64_t end) {
    at::Tensor rows = up_TF.narrow(0, begin, end - begin);
    rows.copy_(activated(rows, config_.activation));
  });
  add_and_norm(hidden_TD, product(up_TF, weights.down), weights.mlp_norm);
}

void EncoderModel::self_test() {
  const at::Tensor input = self_test_block(37, config_.hidden_size, at::kCPU);
  const Linear& qkv = weights_.layers.front().qkv;
  compare_paths("product", product(input, qkv), at::linear(input, qkv.plain_weight(), qkv.bias_N), 1e-4,
                cpu_kernels().name);
}

}  // namespace magister
