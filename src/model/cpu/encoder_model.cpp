// The pass of an encoder: the threads share products by row tiles, and attention by pairs of sequence and head.
#include "model/cpu/encoder_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
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

// The bucket of a distance: the distance itself up to half of the buckets, logarithmic beyond. The f32 operations are
// the same as in training, because at the edge of a bucket another rounding would select another vector.
at::Tensor bucket_of(const at::Tensor& distance, const EncoderConfig& encoder) {
  const std::int64_t middle = encoder.position_buckets / 2;
  if (middle == 0) return distance;
  const at::Tensor size = distance.abs();
  const at::Tensor beyond = size.clamp_min(std::max<std::int64_t>(middle - 1, 1)).to(at::kFloat);
  const double last = static_cast<double>(encoder.max_relative_positions - 1) / static_cast<double>(middle);
  const at::Tensor range = at::log(at::scalar_tensor(last, beyond.options()));
  const at::Tensor by_log =
      at::ceil(at::log(beyond / static_cast<double>(middle)) / range * (middle - 1)) + static_cast<double>(middle);
  return at::where(size <= middle, distance.to(at::kFloat), by_log * distance.sign()).to(at::kLong);
}

}  // namespace

namespace {

at::Tensor normed(const at::Tensor& x_TD, const EncoderWeights::Norm& norm, const ModelConfig& config) {
  return at::layer_norm(x_TD, {x_TD.size(1)}, norm.weight_D, norm.bias_D, config.rms_norm_eps);
}

}  // namespace

EncoderWeights load_encoder_weights(const ModelDescription& description, const TensorFile& file, ThreadPool& pool,
                                    const LoadHook& hook) {
  EncoderWeights out;
  out.config = description.config;
  WeightSource source(file, description, partition_for(out.config, 0, 1), 0, at::kFloat, {}, &pool, hook);
  const TensorNames& names = description.names;
  const EncoderConfig& encoder = *out.config.encoder;
  const std::int64_t D = out.config.hidden_size, labels = out.config.head_outputs();
  const auto norm = [&](const std::string& weight, const std::string& bias) {
    return EncoderWeights::Norm{source.load_whole(weight, {D}), source.load_whole(bias, {D})};
  };
  out.words_VD = source.load_embeddings();
  out.positions_PD = source.load_positions();
  out.types_XD = source.load_whole(names.embed_token_types, {encoder.token_types, D});
  out.embed_norm = norm(names.embed_norm, names.embed_norm_bias);
  out.relative_ND = source.load_whole(names.relative, {2 * encoder.relative_span, D});
  if (encoder.relative_norm)
    out.relative_ND = normed(out.relative_ND, norm(names.relative_norm, names.relative_norm_bias), out.config);
  for (std::int64_t i = 0; i < out.config.num_hidden_layers; ++i) {
    const TensorNames::Layer& layer = names.layers[static_cast<std::size_t>(i)];
    EncoderWeights::Layer& to = out.layers.emplace_back();
    to.qkv = pack(source.load_qkv_proj(i), &pool);
    to.output = pack(source.load_o_proj(i), &pool);
    to.attention_norm = norm(layer.attention_output_norm, layer.attention_output_norm_bias);
    to.up = pack(source.load_gate_up_proj(i), &pool);
    to.down = pack(source.load_down_proj(i), &pool);
    to.mlp_norm = norm(layer.mlp_output_norm, layer.mlp_output_norm_bias);
  }
  out.pooler = pack({source.load_whole(names.pooler, {D, D}), source.load_whole(names.pooler_bias, {D})}, &pool);
  out.head.projection =
      pack({source.load_whole(names.lm_head, {labels, D}), source.load_whole(names.lm_head_bias, {labels})}, &pool);
  out.head.vocab = {0, static_cast<std::uint64_t>(labels)};
  out.head.vocab_size = labels;
  source.verify_all_used();
  out.num_bytes = source.loaded_bytes();
  return out;
}

at::Tensor EncoderModel::normed(const at::Tensor& x_TD, const Norm& norm) const {
  return magister::normed(x_TD, norm, config_);
}

void EncoderModel::add_and_norm(at::Tensor& hidden_TD, const at::Tensor& output_TD, const Norm& norm) const {
  for_tiles(pool_, hidden_TD.size(0), [&](std::int64_t begin, std::int64_t end) {
    at::Tensor rows = hidden_TD.narrow(0, begin, end - begin);
    rows.copy_(normed(rows + output_TD.narrow(0, begin, end - begin), norm));
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

at::Tensor EncoderModel::positions_of(const PackedBatch& batch) const {
  const auto first = static_cast<std::int32_t>(config_.encoder->first_position);
  if (first == 0) return batch.positions_T;
  const std::int32_t padding = first - 1;  // id of the padding token, and row of its vector
  at::Tensor rows_T = at::empty_like(batch.positions_T);
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    std::int32_t next = first;
    for (std::int64_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t)
      rows_T.data_ptr<std::int32_t>()[t] = ids[t] == padding ? padding : next++;
  }
  return rows_T;
}

at::Tensor EncoderModel::embed(const PackedBatch& batch) const {
  at::Tensor hidden_TD = at::empty({batch.num_tokens(), config_.hidden_size}, weights_.words_VD.options());
  const at::Tensor positions_T = positions_of(batch);
  for_tiles(pool_, batch.num_tokens(), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t rows = end - begin;
    at::Tensor sum = weights_.words_VD.index_select(0, batch.token_ids_T.narrow(0, begin, rows));
    if (weights_.types_XD.defined()) sum += weights_.types_XD[0];
    if (weights_.positions_PD.defined())
      sum += weights_.positions_PD.index_select(0, positions_T.narrow(0, begin, rows));
    hidden_TD.narrow(0, begin, rows).copy_(normed(sum, weights_.embed_norm));
  });
  return hidden_TD;
}

EncoderModel::Distances EncoderModel::distances_of(const PackedBatch& batch) const {
  const EncoderConfig& encoder = *config_.encoder;
  const std::int64_t span = encoder.relative_span;
  if (span == 0) return {};
  std::int64_t longest = 0;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s)
    longest = std::max(longest, batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
  const at::Tensor place_L = at::arange(longest, at::kLong);
  const at::Tensor bucket_LL = bucket_of(place_L.unsqueeze(1) - place_L.unsqueeze(0), encoder);
  return {(bucket_LL + span).clamp(0, 2 * span - 1), (span - bucket_LL).clamp(0, 2 * span - 1)};
}

at::Tensor EncoderModel::attend_head(const at::Tensor& qkv_LX, const at::Tensor& distances_NX,
                                     const Distances& distances, std::int64_t head) const {
  const std::int64_t D = config_.hidden_size, E = config_.head_dim, L = qkv_LX.size(0);
  const EncoderConfig& encoder = *config_.encoder;
  const auto part = [&](const at::Tensor& x, std::int64_t which) { return x.narrow(1, which * D + head * E, E); };
  const at::Tensor q_LE = part(qkv_LX, 0), k_LE = part(qkv_LX, 1);
  at::Tensor scores_LL = at::matmul(q_LE, k_LE.t());
  if (encoder.content_to_position) {
    const at::Tensor index_LL = distances.content_to_position_LL.narrow(0, 0, L).narrow(1, 0, L);
    scores_LL += at::matmul(q_LE, part(distances_NX, 1).t()).gather(1, index_LL);
  }
  if (encoder.position_to_content) {
    const at::Tensor index_LL = distances.position_to_content_LL.narrow(0, 0, L).narrow(1, 0, L);
    scores_LL += at::matmul(k_LE, part(distances_NX, 0).t()).gather(1, index_LL).t();
  }
  const int kinds = 1 + (encoder.content_to_position ? 1 : 0) + (encoder.position_to_content ? 1 : 0);
  scores_LL.mul_(1.0 / std::sqrt(static_cast<double>(E * kinds)));
  return at::matmul(at::softmax(scores_LL, 1), part(qkv_LX, 2));
}

at::Tensor EncoderModel::attend(const Layer& layer, const PackedBatch& batch, const Distances& distances,
                                const at::Tensor& hidden_TD) const {
  const std::int64_t H = config_.num_attention_heads, E = config_.head_dim;
  const at::Tensor qkv_TX = product(hidden_TD, layer.qkv);
  const at::Tensor distances_NX =
      weights_.relative_ND.defined() ? product(weights_.relative_ND, layer.qkv) : at::Tensor();
  at::Tensor context_TD = at::empty_like(hidden_TD);
  on_threads(&pool_, batch.num_sequences() * H, [&](std::int64_t tile) {
    const std::int64_t s = tile / H, head = tile % H, begin = batch.cu_seqlens[s];
    const std::int64_t length = batch.cu_seqlens[s + 1] - begin;
    context_TD.narrow(0, begin, length)
        .narrow(1, head * E, E)
        .copy_(attend_head(qkv_TX.narrow(0, begin, length), distances_NX, distances, head));
  });
  return product(context_TD, layer.output);
}

void EncoderModel::run_layer(const Layer& layer, const PackedBatch& batch, const Distances& distances,
                             at::Tensor& hidden_TD) const {
  add_and_norm(hidden_TD, attend(layer, batch, distances, hidden_TD), layer.attention_norm);
  at::Tensor up_TF = product(hidden_TD, layer.up);
  for_tiles(pool_, up_TF.size(0), [&](std::int64_t begin, std::int64_t end) {
    at::Tensor rows = up_TF.narrow(0, begin, end - begin);
    rows.copy_(activated(rows, config_.activation));
  });
  add_and_norm(hidden_TD, product(up_TF, layer.down), layer.mlp_norm);
}

at::Tensor EncoderModel::run(const PackedBatch& batch, const std::function<bool()>& should_stop,
                             const std::function<void(std::int64_t, const at::Tensor&)>& after_layer) const {
  if (batch.num_tokens() == 0) return at::empty({0, config_.hidden_size}, weights_.words_VD.options());
  const std::int64_t last = batch.positions_T.max().item<std::int64_t>();
  MAGISTER_CHECK(!config_.learned_positions || last < config_.max_position_embeddings, ExitCode::kConfig,
                 "a sequence of {} tokens is longer than the {} positions that this model has learned (there is no "
                 "vector for a later one); use shorter sequences",
                 last + 1, config_.max_position_embeddings);
  at::Tensor hidden_TD = embed(batch);
  if (after_layer) after_layer(-1, hidden_TD);
  const Distances distances = distances_of(batch);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    if (should_stop && should_stop()) return {};
    run_layer(weights_.layers[i], batch, distances, hidden_TD);
    if (after_layer) after_layer(static_cast<std::int64_t>(i), hidden_TD);
  }
  return hidden_TD;
}

at::Tensor EncoderModel::forward(const PackedBatch& batch, const std::function<bool()>& should_stop) {
  return run(batch, should_stop, {});
}

at::Tensor EncoderModel::logits(const at::Tensor& hidden_RD) const {
  at::Tensor pooled_RD = product(hidden_RD.contiguous(), weights_.pooler);
  switch (config_.encoder->pooler) {
    case EncoderConfig::Pooler::kRelu:
      pooled_RD = at::relu(pooled_RD);
      break;
    case EncoderConfig::Pooler::kTanh:
      pooled_RD = at::tanh(pooled_RD);
      break;
    case EncoderConfig::Pooler::kGelu:
      pooled_RD = at::gelu(pooled_RD, "none");
      break;
  }
  return product(pooled_RD, weights_.head.projection);
}

std::string EncoderModel::first_not_finite(const PackedBatch& batch) {
  std::string found;
  run(batch, {}, [&](std::int64_t layer, const at::Tensor& hidden_TD) {
    if (!found.empty() || at::isfinite(hidden_TD).all().item<bool>()) return;
    found = layer < 0 ? "the embeddings" : fmt::format("layer {}", layer);
  });
  return found.empty() ? "the head" : found;
}

void EncoderModel::self_test() {
  const at::Tensor input = self_test_block(37, config_.hidden_size, at::kCPU);
  const Linear& qkv = weights_.layers.front().qkv;
  compare_paths("product", product(input, qkv), at::linear(input, qkv.plain_weight(), qkv.bias_N), 1e-4,
                cpu_kernels().name);
}

at::Tensor EncoderModel::forward(const PackedBatch&, const std::vector<BlockTable>&, KvCache&) {
  fail(ExitCode::kInternal, "an encoder was asked to continue from a KV cache, which it does not have; report this");
}
KvCache EncoderModel::make_cache(std::int64_t) const {
  fail(ExitCode::kInternal, "an encoder was asked for a KV cache; report this");
}
at::Tensor EncoderModel::forward_reference(const PackedBatch&) {
  fail(ExitCode::kInternal, "an encoder was asked for its reference pass; report this");
}

}  // namespace magister
