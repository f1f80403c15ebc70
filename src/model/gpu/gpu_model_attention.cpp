// Attention of a layer in passes of prompts, and the cache of all layers.
#include <ATen/ATen.h>

#include <atomic>

#include "magister/model/kv_codes.h"
#include "model/gpu/gpu_model.h"

namespace magister::gpu {

KvCache GpuModel::make_cache(std::int64_t num_pages) const {
  static std::atomic<std::uint64_t> caches{0};
  KvCache cache;
  cache.num_pages = num_pages;
  cache.generation = ++caches;
  const auto options = at::TensorOptions().dtype(fp8_cache_ ? at::kByte : weights_.dtype).device(weights_.device);
  for (const GpuLayer& layer : weights_.layers) {
    const auto pages = [&](std::int64_t size) {
      if (!layer.shape.has_own_kv) return at::Tensor();
      return at::zeros({num_pages + 1, layer.shape.kv_heads, KvPages::kSlots, fp8_cache_ ? size + 1 : size}, options);
    };
    // With latents, a token has one vector, among values, and the keys are those of an indexer.
    const auto& latent = layer.shape.latent;
    cache.keys.push_back(pages(!latent                   ? layer.shape.head_dim
                               : layer.shape.has_indexer ? latent->indexer->head_dim
                                                         : 0));
    cache.values.push_back(pages(latent ? latent->token_width() : layer.shape.value_dim()));
  }
  return cache;
}

void GpuModel::use_fp8_cache() {
  check_kv_codes(weights_.config, weights_.dtype);
  fp8_cache_ = true;
}

ProductRows GpuModel::attention_input(const GpuLayer& layer, GpuPass& pass) const {
  const bool plain = pass.sparse != nullptr || layer.around.has_laurel() ||
                     (weights_.config.parallel_residual && !layer.experts.empty());
  return plain ? ProductRows{norm(pass, layer.attention_norms)}
               : norm_for(layer.first_product(), pass, layer.attention_norms);
}

at::Tensor GpuModel::latents_attention(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD,
                                       const at::Tensor& keys, const at::Tensor& values) const {
  const LayerShape& shape = layer.shape;
  const LatentRows rows{multiply(layer.qkv_proj, pass, normed_TD),
                        pass.cos_PE2[shape.rope_table],
                        pass.sin_PE2[shape.rope_table],
                        pass.rope_rows_T,
                        values,
                        pass.slots_T,
                        normed_TD.x_MK,
                        keys};
  const auto product = [&](const GpuLinear& linear, const at::Tensor& x) { return multiply(linear, pass, {x}); };
  return pass.sparse != nullptr ? sparse_attention(layer, *pass.sparse, rows, product, queue_)
                                : latent_attention(layer, pass.attention, pass.latent_keys, rows, product, queue_);
}

at::Tensor GpuModel::attention(const GpuLayer& layer, GpuPass& pass, const ProductRows& normed_TD,
                               const at::Tensor& keys, const at::Tensor& values) const {
  if (layer.latent) return latents_attention(layer, pass, normed_TD, keys, values);
  const LayerShape& shape = layer.shape;
  at::Tensor qkv_TQ = multiply(layer.qkv_proj, pass, normed_TD);
  HeadSquares squares;
  if (shape.all_heads > 0)
    squares = {at::empty({qkv_TQ.size(0), 2}, qkv_TQ.options().dtype(at::kFloat)),
               [this](at::Tensor& sum) { group_.all_reduce_sum(sum); }};
  const bool flash = flash_takes(shape, weights_.dtype, queue_);
  at::Tensor out_TA;
  with_type(weights_.dtype, [&](auto a) {
    using A = decltype(a);
    if (repeated_keys(shape) > 0) {
      const at::Tensor rows_TN = qkv_TQ;
      qkv_TQ = at::empty({rows_TN.size(0), shape.qkv_features()}, rows_TN.options());
      repeat_keys<A>(shape, rows_TN, qkv_TQ, queue_);
    }
    rotate_heads<A>(layer, squares, qkv_TQ, pass.cos_PE2[shape.rope_table], pass.sin_PE2[shape.rope_table],
                    pass.rope_rows_T, pass.positions_T, keys, values, pass.slots_T, queue_);
    if (is_last(layer) && pass.read_R.defined() && pass.read_R.size(0) == 0) return;
    if (layer.lends_kv) pass.kv_TQ[layer.kv_layer] = qkv_TQ;
    const at::Tensor kv_TQ = shape.has_own_kv ? qkv_TQ : pass.kv_TQ.at(layer.kv_layer);
    out_TA = attend(pass.attention, shape, {qkv_TQ, keys, values, kv_TQ, layer.scores}, flash, queue_);
    if (layer.has_gate()) gate_outputs<A>(shape, multiply(layer.attention_gate, pass, normed_TD), out_TA, queue_);
  });
  return out_TA;
}

ProductRows GpuModel::attention_block(std::size_t number, GpuPass& pass, const KvCache* cache) const {
  const GpuLayer& layer = weights_.layers[number];
  begin_layer(number, pass);
  const ProductRows input_TD = attention_input(layer, pass);
  if (pass.watch != nullptr) pass.watch->look(static_cast<std::int64_t>(number) - 1, pass.hidden_TD);
  if (layer.around.has_laurel()) add_laurel(layer, pass, input_TD.x_MK);
  ProductRows beside;  // with parallel blocks, the MLP reads the same stream as attention
  if (weights_.config.parallel_residual)
    beside = weights_.shares_norms() ? input_TD : norm_for(layer.gate_up_proj, pass, layer.mlp_norms);
  const at::Tensor keys = cache == nullptr ? at::Tensor() : cache->keys[layer.kv_layer],
                   values = cache == nullptr ? at::Tensor() : cache->values[layer.kv_layer];
  at::Tensor out_TA = attention(layer, pass, input_TD, keys, values);
  if (is_last(layer) && pass.read_R.defined()) {
    for (at::Tensor* of_rows : {&out_TA, &pass.hidden_TD, &pass.vectors_TX, &pass.streams_TAD}) {
      if (of_rows->defined()) *of_rows = of_rows->index_select(0, pass.read_R);
    }
    beside = beside.chosen(pass.read_R);
    if (pass.read_R.size(0) == 0) return {};
  }
  begin_sum(pass, multiply(layer.o_proj, pass, {out_TA}), layer.attention_norms,
            layer.around.has_laurel() ? Laurel::kFactor : 1.0f);
  return beside;
}

}  // namespace magister::gpu
