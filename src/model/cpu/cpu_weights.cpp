// Reads a shard's weights layer by layer, and builds the rotary tables of a batch.
#include "model/cpu/cpu_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "magister/model/cpu/panel_memory.h"
#include "magister/model/host_copy.h"
#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/cpu/cpu_model.h"
#include "model/cpu/encoder_model.h"

namespace magister {

namespace {

ExpertsWeights load_experts(WeightSource& source, std::int64_t layer, const LayerShape& shape, BlockNorms norms,
                            ThreadPool& pool) {
  ExpertsWeights out{std::move(norms), pack(source.load_router(layer), &pool), {}, source.load_choice_bias(layer)};
  using Names = TensorNames::Layer;
  out.scales_X = source.load_layer_whole(layer, &Names::expert_scales);
  // The router's norm has no weight, but a learned factor of every number follows it, and 1 / sqrt(D).
  if (const at::Tensor scale_D = source.load_layer_whole(layer, &Names::router_scale); scale_D.defined())
    out.router_norms.input_D = scale_D / std::sqrt(static_cast<double>(shape.hidden_size));
  LayerShape of_expert = shape;
  of_expert.mlp = shape.expert_mlp;
  for (std::int64_t x = 0; x < shape.num_experts; ++x) {
    if (x == shape.num_experts - shape.num_shared_experts) of_expert.mlp = shape.shared_mlp;
    FeedForwardWeights expert{{}, pack(source.load_expert_gate_up_proj(layer, x), &pool), {}};
    expert.down_proj = pack(source.load_expert_down_proj(layer, x), &pool);
    out.experts.emplace_back(of_expert, std::move(expert));
  }
  return out;
}

LatentWeights load_latent(WeightSource& source, std::int64_t layer, const LayerShape& shape, ThreadPool& pool) {
  LatentWeights out;
  if (shape.latent->query_rank > 0) out.q_up_proj = pack(source.load_q_up_proj(layer), &pool);
  const std::int64_t N = shape.latent->nope_dim, V = shape.latent->value_dim;
  const at::Tensor up_HNC = source.load_latent_up_proj(layer).view({shape.heads, N + V, shape.latent->rank});
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    out.key_up.push_back(pack({up_HNC[head].narrow(0, 0, N).t().contiguous(), {}}, &pool));
    out.value_up.push_back(pack({up_HNC[head].narrow(0, N, V).contiguous(), {}}, &pool));
  }
  return out;
}

DeltaWeights load_delta(WeightSource& source, std::int64_t layer, const LayerShape& shape, ThreadPool& pool) {
  DeltaParts parts = source.load_delta(layer);
  DeltaWeights out{parts.conv_CW.t().contiguous(), pack(std::move(parts.steps), &pool), parts.rate_H, parts.bias_H,
                   parts.norm_V};
  const auto length = static_cast<double>(shape.head_dim);  // a length is the root of a mean times this
  out.key_scale_E = at::full({shape.head_dim}, 1.0 / std::sqrt(length), at::kFloat);
  out.query_scale_E = at::full({shape.head_dim}, 1.0 / length, at::kFloat);
  return out;
}

std::optional<Indexer> load_indexer(WeightSource& source, std::int64_t layer, const LayerShape& shape,
                                    ThreadPool& pool) {
  if (!shape.has_indexer) return std::nullopt;
  IndexerWeights out{pack(source.load_index_q_proj(layer), &pool), {}, source.load_index_k_norm(layer), {}};
  out.k_proj = pack(source.load_index_k_proj(layer), &pool);
  out.head_proj = pack(source.load_index_weights(layer), &pool);
  return Indexer(*shape.latent, std::move(out));
}

FeedForwardWeights load_mlp(WeightSource& source, std::int64_t layer, BlockNorms norms, ThreadPool& pool) {
  FeedForwardWeights mlp{std::move(norms), pack(source.load_gate_up_proj(layer), &pool), {}};
  mlp.down_proj = pack(source.load_down_proj(layer), &pool);
  mlp.xielu = source.load_xielu(layer);
  return mlp;
}

// The MLP beside a layer's experts takes the norm of the block's input, and `norms` becomes that of the experts'.
std::optional<DenseBeside> load_beside(WeightSource& source, std::int64_t layer, const LayerShape& shape,
                                       BlockNorms& norms, ThreadPool& pool) {
  using Names = TensorNames::Layer;
  const at::Tensor output_D = source.load_layer_whole(layer, &Names::dense_output_norm);
  if (!output_D.defined()) return std::nullopt;
  DenseBeside beside{FeedForward(shape, load_mlp(source, layer, {norms.input_D, {}}, pool)), output_D,
                     source.load_layer_whole(layer, &Names::experts_output_norm)};
  norms.input_D = source.load_layer_whole(layer, &Names::experts_input_norm);
  return beside;
}

LayerTail load_tail(WeightSource& source, std::int64_t layer, const LayerShape& shape, ThreadPool& pool) {
  using Names = TensorNames::Layer;
  LayerTail tail;
  tail.activation = shape.activation;
  const at::Tensor scalar = source.load_layer_whole(layer, &Names::layer_scalar);
  if (scalar.defined()) tail.scalar = scalar.item<float>();
  tail.norm_D = source.load_layer_whole(layer, &Names::per_layer_output_norm);
  if (!tail.norm_D.defined()) return tail;
  tail.gate = pack(source.load_layer_product(layer, &Names::per_layer_gate), &pool);
  tail.output = pack(source.load_layer_product(layer, &Names::per_layer_output), &pool);
  return tail;
}

Laurel load_laurel(WeightSource& source, std::int64_t layer, ThreadPool& pool) {
  using Names = TensorNames::Layer;
  Laurel laurel;
  laurel.norm_D = source.load_layer_whole(layer, &Names::laurel_norm);
  if (!laurel.norm_D.defined()) return laurel;
  laurel.left = pack(source.load_layer_product(layer, &Names::laurel_left), &pool);
  laurel.right = pack(source.load_layer_product(layer, &Names::laurel_right), &pool);
  return laurel;
}

AltUp load_altup(WeightSource& source, std::int64_t layer, const ModelConfig& config, ThreadPool& pool) {
  using Names = TensorNames::Layer;
  AltUp altup;
  if (!config.altup) return altup;
  altup.inputs = config.altup->inputs;
  altup.active = config.altup->active;
  altup.router = pack({source.load_layer_whole(layer, &Names::altup_router), {}}, &pool);
  altup.router_norm_D =
      source.load_layer_whole(layer, &Names::altup_router_norm) / static_cast<double>(config.hidden_size);
  altup.prediction_AAA = source.load_layer_whole(layer, &Names::altup_prediction);
  altup.correction_AA = source.load_layer_whole(layer, &Names::altup_correction);
  const at::Tensor scale_D = source.load_layer_whole(layer, &Names::altup_scale);
  if (config.altup->scales_corrected) altup.scale_D = scale_D;
  return altup;
}

AltUpEnds load_altup_ends(WeightSource& source, ThreadPool& pool) {
  AltUpEnds ends;
  for (const at::Tensor& weight : source.load_matrices(&TensorNames::altup_projections))
    ends.projections.push_back(pack({weight, {}}, &pool));
  for (const at::Tensor& weight : source.load_matrices(&TensorNames::altup_unembeddings))
    ends.unembeddings.push_back(pack({weight, {}}, &pool));
  return ends;
}

PerLayerInputs load_per_layer(WeightSource& source, const ModelConfig& config, const Partition& partition,
                              at::ScalarType dtype, ThreadPool& pool) {
  PerLayerInputs out;
  if (config.per_layer_width == 0) return out;
  out.layers = config.num_hidden_layers;
  out.width = config.per_layer_width;
  out.num_ids = config.per_layer_vocab;
  out.table = {source.load_per_layer_table(), {}};
  out.ids = {partition.vocab.begin, partition.vocab.begin + static_cast<std::uint64_t>(out.table.weight_NK.size(0))};
  out.table_scale = at::scalar_tensor(std::sqrt(static_cast<double>(out.width)), dtype).to(at::kFloat).item<float>();
  out.norm_P = source.load_per_layer_norm();
  if (out.norm_P.defined()) out.projection = pack({source.load_per_layer_projection(), {}}, &pool);
  return out;
}

// Which layers differ in size from the first, and which pages each layer uses.
void find_kinds(CpuWeights& weights) {
  const ModelConfig& config = weights.config;
  const LayerShape& first = weights.decoder.front().shape();
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const LayerShape& shape = weights.decoder[static_cast<std::size_t>(i)].shape();
    weights.cache_places.push_back(static_cast<std::size_t>(config.kv_layer(i)));
    const bool is_other = config.has_kinds_of_attention() && config.slides(i) != config.slides(0);
    weights.pass_places.push_back(is_other || config.is_linear(i) != config.is_linear(0) ? 1 : 0);
    if (shape.delta.has_value() != first.delta.has_value() || shape.head_dim != first.head_dim ||
        shape.kv_of_head != first.kv_of_head || shape.mlp != first.mlp || shape.qkv_features() != first.qkv_features())
      weights.other_shapes.push_back(shape);
  }
}

}  // namespace

CpuWeights load_cpu_weights(const ModelDescription& description, const TensorFile& file, int tp_rank, int tp_size,
                            at::ScalarType dtype, const QuantScheme& quantization, ThreadPool& pool,
                            const LoadHook& hook, std::shared_ptr<HostCopy> shared) {
  CpuWeights layers;
  layers.config = description.config;
  layers.partition = partition_for(description.config, tp_rank, tp_size);
  layers.has_codes = quantization.on();
  const std::uint64_t num_bytes = weight_bytes(description, file, dtype, tp_rank, tp_size, quantization);
  if (shared != nullptr && !shared->begin()) shared = nullptr;
  const PanelBlocks blocks(num_bytes);
  WeightSource source(file, description, layers.partition, tp_rank, dtype, quantization, &pool, hook);
  source.pack_products(shared);
  const bool tied = description.names.lm_head.empty();
  layers.embedding = tied ? source.load_packed_embeddings() : Linear{source.load_embeddings(), {}};
  layers.positions = {source.load_positions(), {}};
  layers.embedding_norm = source.load_embedding_norm();
  layers.per_layer = load_per_layer(source, layers.config, layers.partition, dtype, pool);
  layers.altup_ends = load_altup_ends(source, pool);
  for (std::int64_t i = 0; i < description.config.num_hidden_layers; ++i) {
    const LayerShape shape = shape_of(description.config, layers.partition, i);
    AttentionWeights attention{source.load_attention_norms(i), pack(source.load_qkv_proj(i), &pool), {}, {}, {}};
    if (shape.latent) attention.latent = load_latent(source, i, shape, pool);
    if (shape.delta) attention.delta = load_delta(source, i, shape, pool);
    attention.indexer = load_indexer(source, i, shape, pool);
    attention.q_norm = source.load_q_norm(i);
    attention.k_norm = source.load_k_norm(i);
    attention.q_norm_bias = source.load_q_norm_bias(i);
    attention.k_norm_bias = source.load_k_norm_bias(i);
    attention.sinks = source.load_sinks(i);
    if (description.config.v_norm && shape.has_own_kv) attention.v_norm = at::ones({shape.value_dim()}, at::kFloat);
    if (shape.gate_numbers > 0) attention.gate = pack(source.load_attention_gate(i), &pool);
    attention.o_proj = pack(source.load_o_proj(i), &pool);
    BlockNorms mlp_norms = description.config.parallel_residual && !description.config.parallel_norms
                               ? attention.norms
                               : source.load_mlp_norms(i);
    if (description.config.is_sparse(i)) {
      std::optional<DenseBeside> beside = load_beside(source, i, shape, mlp_norms, pool);
      layers.decoder.push_back({{shape, std::move(attention)},
                                Experts(shape, load_experts(source, i, shape, std::move(mlp_norms), pool)),
                                std::move(beside),
                                load_tail(source, i, shape, pool)});
      continue;
    }
    layers.decoder.push_back({{shape, std::move(attention)},
                              FeedForward(shape, load_mlp(source, i, std::move(mlp_norms), pool)),
                              std::nullopt,
                              load_tail(source, i, shape, pool),
                              load_laurel(source, i, pool),
                              load_altup(source, i, description.config, pool)});
  }
  find_kinds(layers);
  layers.norm = source.load_norm();
  layers.lm_head = {tied ? layers.embedding : source.load_packed_lm_head(),
                    layers.partition.head_rows(description.config),
                    description.config.head_outputs(),
                    {},
                    description.config.final_logit_softcapping};
  layers.lm_head.projection.bias_N = source.load_lm_head_bias();
  source.verify_all_used();
  if (shared != nullptr) shared->wait(hook);
  layers.num_bytes = source.loaded_bytes();
  layers.shared_bytes = source.shared_bytes();
  return layers;
}

namespace {

std::int64_t length_of(const PackedBatch& batch, std::int64_t s) {
  return batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
}

// The positions of all sequences that share a table, ascending, each once. The positions of a sequence are neighbours.
std::vector<std::int64_t> shared_positions(const ModelConfig& config, const PackedBatch& batch) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (!rope_needs_own_table(config, length_of(batch, s))) ranges.emplace_back(batch.past(s), length_of(batch, s));
  }
  std::sort(ranges.begin(), ranges.end());
  std::vector<std::int64_t> positions;
  for (const auto& [begin, end] : ranges) {
    for (std::int64_t next = positions.empty() ? begin : std::max(begin, positions.back() + 1); next < end; ++next)
      positions.push_back(next);
  }
  return positions;
}

// Appends the rows of rotary embedding `index` for every token of the batch.
void add_rope_rows(const ModelConfig& config, const PackedBatch& batch, std::size_t index,
                   const std::vector<std::int64_t>& positions, RopeTables& tables) {
  const RopeTable shared = rope_rows(config, 0, at::tensor(positions, at::kLong), index);
  tables.tables.insert(tables.tables.end(), {shared.cos_PE2, shared.sin_PE2});
  const std::int64_t half = shared.cos_PE2.size(1);
  RopeRows& rows = tables.rows.emplace_back();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t past = batch.past(s), length = length_of(batch, s);
    RopeTable table = shared;
    auto row = std::lower_bound(positions.begin(), positions.end(), past) - positions.begin();
    if (rope_needs_own_table(config, length)) {
      refuse_dynamic_rope_with_cache(batch, config, length);
      table = rope_rows(config, length, at::arange(past, length, at::kLong), index);
      tables.tables.insert(tables.tables.end(), {table.cos_PE2, table.sin_PE2});
      row = 0;
    }
    for (std::int64_t position = past; position < length; ++position, ++row) {
      rows.cos.push_back(table.cos_PE2.const_data_ptr<float>() + row * half);
      rows.sin.push_back(table.sin_PE2.const_data_ptr<float>() + row * half);
    }
  }
}

}  // namespace

RopeTables CpuWeights::rope_tables(const PackedBatch& batch) const {
  RopeTables tables;
  const std::vector<std::int64_t> positions = shared_positions(config, batch);
  for (std::size_t i = 0; i < num_rope_tables(config); ++i) add_rope_rows(config, batch, i, positions, tables);
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

at::Tensor RopeTables::gather_cos(const LayerShape& shape) const {
  return gather(rows[shape.rope_table].cos, shape.rotary_dim / 2);
}
at::Tensor RopeTables::gather_sin(const LayerShape& shape) const {
  return gather(rows[shape.rope_table].sin, shape.rotary_dim / 2);
}

std::uint64_t activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                               int num_threads) {
  if (config.encoder) return cpu_encoder_bytes(config, num_tokens, num_threads);
  const auto D = static_cast<std::uint64_t>(config.hidden_size),
             N = static_cast<std::uint64_t>(config.num_hidden_layers);
  // A token has queries, keys and values, outputs of attention, and keys and values in pages that may be half empty.
  std::uint64_t attention = 0, mlp = partition.mlp.size();
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const Partition part = layer_partition(config, partition, layer);
    mlp = std::max<std::uint64_t>(mlp, part.mlp.size());
    if (config.is_linear(layer)) continue;  // see below
    // Layers of two kinds have pages each.
    const std::uint64_t kv_copies = config.has_kinds_of_attention() ? 10 : 6;
    const auto gates = static_cast<std::uint64_t>(config.gate_numbers(layer) / config.heads_of(layer));
    attention = std::max(
        attention, (2 * part.heads.size() + kv_copies * part.kv_heads.size()) *
                           static_cast<std::uint64_t>(std::max(config.head_dim_of(layer), config.value_dim_of(layer))) +
                       part.heads.size() * gates);
  }
  // With latent attention: queries, the same as latents where texts are generated, outputs, and latents in pages.
  if (const auto& latent = config.latent)
    attention = partition.heads.size() *
                    static_cast<std::uint64_t>(config.head_dim + latent->token_width() + latent->value_dim) +
                2 * static_cast<std::uint64_t>(latent->token_width());
  // Layers with linear attention have rows of other widths: queries, keys and values, outputs, gates and steps.
  if (config.delta) {
    const DeltaConfig& delta = *config.delta;
    attention += static_cast<std::uint64_t>(2 * delta.key_dim) * partition.delta_keys.size() +
                 static_cast<std::uint64_t>(3 * delta.value_dim + 2) * partition.delta_heads.size();
  }
  // With an indexer: its queries, the weights of its heads, its keys in pages, and the chosen keys.
  if (config.latent && config.latent->indexer) {
    const IndexerConfig& indexer = *config.latent->indexer;
    attention += static_cast<std::uint64_t>((indexer.heads + 2) * indexer.head_dim + indexer.heads + indexer.top_k);
  }
  // Per token: residual stream, partial sum, vectors by layer, AltUp's vectors, and attention. With experts also the
  // output of each chosen expert, its number and weight, and two numbers of the grouping.
  const std::uint64_t a_token = 2 * D + attention + N * static_cast<std::uint64_t>(config.per_layer_width) +
                                (config.dense_beside_experts ? D : 0) +
                                (config.altup ? static_cast<std::uint64_t>(config.altup->inputs) * D : 0) +
                                static_cast<std::uint64_t>(config.experts_a_token()) * (D + 4);
  const std::uint64_t width =
      std::max({mlp, partition.expert.size(), partition.shared_expert.size(),
                static_cast<std::uint64_t>(config.all_experts()), static_cast<std::uint64_t>(config.per_layer_width),
                static_cast<std::uint64_t>(config.laurel_rank), config.altup ? D : 0});
  std::uint64_t a_thread =
      static_cast<std::uint64_t>(LayerBuffers::kTileRows) * ((config.num_experts > 0 ? 2 : 1) * D + 3 * width);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_linear(layer)) continue;
    const auto scratch = static_cast<std::uint64_t>(delta_scratch(shape_of(config, partition, layer)));
    a_thread = std::max(a_thread, scratch);
    break;  // these layers are alike
  }
  // Rotary rows and, while they are made, their angles (half a table) and cosines and sines before their factor; each
  // token points to its rows.
  const std::uint64_t rotary = 5 * rope_row_bytes(config) / 2 + num_rope_tables(config) * 2 * sizeof(float*);
  // Gates and ups of some rows wait for a sum over shards.
  const bool is_split = partition.mlp.size() < static_cast<std::uint64_t>(config.intermediate_size);
  const std::uint64_t waiting = is_split && !config.gate_sparsity.empty()
                                    ? static_cast<std::uint64_t>(std::min(num_tokens, CpuModel::kThinnedRows)) * 2 * mlp
                                    : 0;
  return static_cast<std::uint64_t>(num_tokens) * (4 * a_token + rotary) + 4 * waiting +
         4 * static_cast<std::uint64_t>(num_threads) * a_thread;
}

}  // namespace magister
