// Reads a shard's weights layer by layer and builds the rotary tables of a batch.
#include "model/transformer_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/model/rope.h"
#include "magister/model/weights.h"

namespace magister {

LayerShape shape_of(const ModelConfig& config, const Partition& partition, std::int64_t layer) {
  LayerShape shape;
  shape.hidden_size = config.hidden_size;
  shape.heads = static_cast<std::int64_t>(partition.heads.size());
  shape.kv_heads = static_cast<std::int64_t>(partition.kv_heads.size());
  shape.head_dim = config.head_dim;
  shape.mlp = static_cast<std::int64_t>(partition.mlp.size());
  const bool slides = config.layer_is_sliding.empty() || config.layer_is_sliding[static_cast<std::size_t>(layer)];
  shape.sliding_window = slides ? config.sliding_window : 0;
  const auto heads_per_kv = static_cast<std::uint64_t>(config.num_attention_heads / config.num_key_value_heads);
  for (std::uint64_t head = partition.heads.begin; head < partition.heads.end; ++head) {
    shape.kv_of_head.push_back(static_cast<std::int64_t>(head / heads_per_kv - partition.kv_heads.begin));
  }
  shape.rms_norm_eps = static_cast<float>(config.rms_norm_eps);
  shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return shape;
}

void refuse_dynamic_rope_with_cache(const PackedBatch& batch, const ModelConfig& config, std::int64_t length) {
  MAGISTER_CHECK(
      batch.past_S.empty(), ExitCode::kConfig,
      "a sequence of {} tokens is longer than the {} positions from which this model's dynamic rotary scaling "
      "starts (the keys in the cache would have to turn with every token); generate shorter sequences",
      length, config.max_position_embeddings);
}

TransformerLayers random_layers_on_gpu(const ModelConfig& config, ProcessGroup& group, at::ScalarType dtype,
                                       const QuantScheme& quantization, const gpu::Queue& queue) {
  TransformerLayers layers;
  layers.config = config;
  layers.partition = partition_for(config, group.tp_rank(), group.tp_size());
  layers.gpu = std::make_unique<gpu::GpuModel>(config, layers.partition, dtype, queue, group);
  layers.gpu->randomize(quantization);
  layers.lm_head = {{layers.gpu->head().weight_NK, {}}, layers.partition.vocab, config.vocab_size, queue};
  layers.weight_bytes = layers.gpu->weight_bytes();
  return layers;
}

TransformerLayers load_layers_on_gpu(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                                     at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                                     const gpu::Queue& queue, const LoadHook& hook) {
  TransformerLayers layers;
  layers.config = description.config;
  layers.partition = partition_for(description.config, group.tp_rank(), group.tp_size());
  WeightSource source(file, description, layers.partition, group.tp_rank(), activation_dtype(dtype), quantization,
                      &pool, hook);
  layers.gpu = std::make_unique<gpu::GpuModel>(layers.config, layers.partition, dtype, queue, group);
  layers.gpu->load(source, description.names.lm_head.empty());
  source.verify_all_used();
  layers.lm_head = {{layers.gpu->head().weight_NK, {}}, layers.partition.vocab, description.config.vocab_size, queue};
  layers.weight_bytes = layers.gpu->weight_bytes();
  return layers;
}

TransformerLayers load_layers(const ModelDescription& description, const TensorFile& file, int tp_rank, int tp_size,
                              at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                              const LoadHook& hook) {
  TransformerLayers layers;
  layers.config = description.config;
  layers.partition = partition_for(description.config, tp_rank, tp_size);
  WeightSource source(file, description, layers.partition, tp_rank, dtype, quantization, &pool, hook);
  layers.embedding = {source.load_embeddings(), {}};
  const bool tied = description.names.lm_head.empty();
  if (tied) layers.embedding = pack(layers.embedding, &pool);
  for (std::int64_t i = 0; i < description.config.num_hidden_layers; ++i) {
    LayerWeights weights;
    weights.input_layernorm_D = source.load_input_layernorm(i);
    weights.qkv_proj = pack(source.load_qkv_proj(i), &pool);
    weights.q_norm_E = source.load_q_norm(i);
    weights.k_norm_E = source.load_k_norm(i);
    weights.o_proj = pack(source.load_o_proj(i), &pool);
    weights.post_attention_layernorm_D = source.load_post_attention_layernorm(i);
    weights.gate_up_proj = pack(source.load_gate_up_proj(i), &pool);
    weights.down_proj = pack(source.load_down_proj(i), &pool);
    layers.decoder.emplace_back(shape_of(description.config, layers.partition, i), std::move(weights));
  }
  layers.norm_D = source.load_norm();
  layers.lm_head = {tied ? layers.embedding : pack({source.load_lm_head(layers.embedding.weight_NK), {}}, &pool),
                    layers.partition.vocab, description.config.vocab_size};
  source.verify_all_used();
  layers.weight_bytes = source.loaded_bytes();
  return layers;
}

RopeTables TransformerLayers::rope_tables(const PackedBatch& batch) const {
  RopeTables tables;
  tables.half = config.head_dim / 2;
  std::int64_t longest = 0;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    longest = std::max(longest, batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
  }
  const RopeTable shared = rope_table(config, 0, longest);
  tables.tables = {shared.cos_PE2, shared.sin_PE2};
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t length = batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    RopeTable table = shared;
    if (rope_needs_own_table(config, length)) {
      refuse_dynamic_rope_with_cache(batch, config, length);
      table = rope_table(config, length, length);
      tables.tables.insert(tables.tables.end(), {table.cos_PE2, table.sin_PE2});
    }
    for (std::int64_t position = batch.past(s); position < length; ++position) {
      tables.rows.cos.push_back(table.cos_PE2.const_data_ptr<float>() + position * tables.half);
      tables.rows.sin.push_back(table.sin_PE2.const_data_ptr<float>() + position * tables.half);
    }
  }
  return tables;
}

namespace {

at::Tensor gather(const std::vector<const float*>& rows, std::int64_t half) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(rows.size()), half}, at::TensorOptions().dtype(at::kFloat));
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::copy(rows[t], rows[t] + half, out.data_ptr<float>() + static_cast<std::int64_t>(t) * half);
  }
  return out;
}

}  // namespace

at::Tensor RopeTables::gather_cos() const { return gather(rows.cos, half); }
at::Tensor RopeTables::gather_sin() const { return gather(rows.sin, half); }

std::uint64_t gpu_activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                   at::ScalarType dtype) {
  const auto H = partition.heads.size(), K = partition.kv_heads.size();
  const auto E = static_cast<std::uint64_t>(config.head_dim), D = static_cast<std::uint64_t>(config.hidden_size);
  const std::uint64_t attention = (H + 2 * K) * E + H * E, mlp = 3 * partition.mlp.size();
  // Residual stream, normed rows, a product's output and its f32 copy on the way through the group; ids, rows and slots. The last tile
  // of a product is filled up beside them.
  return static_cast<std::uint64_t>(num_tokens) *
             (2 * sizeof(float) * D + c10::elementSize(dtype) * (2 * D + std::max(attention, mlp)) + 16) +
         static_cast<std::uint64_t>(gpu::kPassTile) * c10::elementSize(dtype) * (D + 2 * partition.mlp.size());
}

std::uint64_t activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                               int num_threads) {
  const auto heads = partition.heads.size(), kv_heads = partition.kv_heads.size();
  const auto E = static_cast<std::uint64_t>(config.head_dim), D = static_cast<std::uint64_t>(config.hidden_size);
  // Residual, partial sum, qkv, attention; keys and values in pages of which half may be empty.
  const std::uint64_t a_token = 2 * D + (2 * heads + 6 * kv_heads) * E;
  const std::uint64_t a_thread = static_cast<std::uint64_t>(LayerBuffers::kTileRows) * (D + 3 * partition.mlp.size());
  return 4 * (static_cast<std::uint64_t>(num_tokens) * a_token + static_cast<std::uint64_t>(num_threads) * a_thread);
}

}  // namespace magister
