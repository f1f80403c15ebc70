// The forward pass of one shard: embedding, decoder layers in fixed row tiles, last norm. With more than one shard the
// partial products are summed by the group between the tiles; alone they go straight into the residual stream.
#include "magister/model/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/partition.h"
#include "magister/model/rope.h"
#include "model/cpu/decoder_layer.h"
#include "model/transformer_layers.h"

namespace magister {

PackedBatch pack_sequences(const std::vector<std::vector<TokenId>>& sequences, std::vector<std::int64_t> past_S) {
  PackedBatch batch;
  batch.past_S = std::move(past_S);
  batch.cu_seqlens.push_back(0);
  for (const auto& sequence : sequences) {
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + static_cast<std::int64_t>(sequence.size()));
  }
  const auto i32 = at::TensorOptions().dtype(at::kInt);
  batch.token_ids_T = at::empty({batch.num_tokens()}, i32);
  batch.positions_T = at::empty({batch.num_tokens()}, i32);
  auto* ids = batch.token_ids_T.data_ptr<std::int32_t>();
  auto* positions = batch.positions_T.data_ptr<std::int32_t>();
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int64_t past = batch.past(static_cast<std::int64_t>(s));
    for (std::size_t i = 0; i < sequences[s].size(); ++i) {
      *ids++ = sequences[s][i];
      *positions++ = static_cast<std::int32_t>(past + static_cast<std::int64_t>(i));
    }
  }
  return batch;
}

at::ScalarType resolve_cpu_dtype(const std::string& name) {
  if (name == "f32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "f16") return at::kHalf;
  MAGISTER_CHECK(name != "fp8", ExitCode::kConfig,
                 "model.dtype: fp8 on CPUs (they have no products of 8-bit floats); choose auto, f32, bf16 or "
                 "f16, or quantization: int8");
  MAGISTER_CHECK(name == "auto", ExitCode::kConfig,
                 "model.dtype is \"{}\" (the weights need a known type); choose auto, f32, bf16 or f16", name);
  return cpu_prefers_bf16() ? at::kBFloat16 : at::kFloat;
}

at::ScalarType resolve_gpu_dtype(const std::string& name) {
  MAGISTER_CHECK(name != "f16", ExitCode::kConfig,
                 "model.dtype: f16 on GPUs (they compute in bf16 or f32 here, and bf16 has the range of "
                 "f32); choose auto, bf16 or f32");
  if (name == "fp8") return at::kFloat8_e4m3fn;
  if (name == "f32") return at::kFloat;
  MAGISTER_CHECK(name == "auto" || name == "bf16", ExitCode::kConfig,
                 "model.dtype is \"{}\" (the weights need a known type); choose auto, f32, bf16 or fp8",
                 printable(name));
  return at::kBFloat16;
}

Transformer::Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                         ThreadPool& pool, at::ScalarType dtype, const QuantScheme& quantization, const LoadHook& hook)
    : layers_(std::make_unique<TransformerLayers>(
          load_layers(description, file, group.tp_rank(), group.tp_size(), dtype, quantization, pool, hook))) {
  layers_->group = &group;
  layers_->pool = &pool;
}
Transformer::Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                         ThreadPool& pool, at::ScalarType dtype, const QuantScheme& quantization,
                         const gpu::Queue& queue, const LoadHook& hook)
    : layers_(std::make_unique<TransformerLayers>(
          load_layers_on_gpu(description, file, group, dtype, quantization, pool, queue, hook))) {
  layers_->group = &group;
  layers_->pool = &pool;
}
Transformer::Transformer(const ModelConfig& config, ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
                         const QuantScheme& quantization, const gpu::Queue& queue)
    : layers_(std::make_unique<TransformerLayers>(random_layers_on_gpu(config, group, dtype, quantization, queue))) {
  layers_->group = &group;
  layers_->pool = &pool;
}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

void Transformer::use_cuda_graphs(bool on) {
  if (layers_->gpu) layers_->gpu->use_graphs(on);
}
const LmHead& Transformer::lm_head() const { return layers_->lm_head; }
const ModelConfig& Transformer::config() const { return layers_->config; }
ThreadPool& Transformer::pool() const { return *layers_->pool; }
ProcessGroup& Transformer::group() const { return *layers_->group; }
std::uint64_t Transformer::weight_bytes() const { return layers_->weight_bytes; }

namespace {

// Calls body(begin, end, thread, pool) for the fixed row tiles of T tokens: the threads take tiles, or, where there is only
// one, share its products.
template <typename Body>
void for_row_tiles(ThreadPool& pool, std::int64_t T, const Body& body) {
  constexpr std::int64_t kRows = LayerBuffers::kTileRows;
  if (T <= kRows) return body(0, T, 0, &pool);
  pool.run((T + kRows - 1) / kRows, [&](std::int64_t tile, int thread) {
    body(tile * kRows, std::min((tile + 1) * kRows, T), thread, static_cast<ThreadPool*>(nullptr));
  });
}

// Rows of the embedding that this shard holds, zero for the others: a sum over the shards completes them.
void embed_rows(const Linear& embedding, IndexRange vocab, const PackedBatch& batch, std::int64_t begin,
                std::int64_t end, float* hidden_TD) {
  const std::int64_t D = embedding.in_features();
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t t = begin; t < end; ++t) {
    float* to = hidden_TD + t * D;
    const auto id = static_cast<std::uint64_t>(ids[t]);
    if (id >= vocab.begin && id < vocab.end) {
      embedding.copy_row(static_cast<std::int64_t>(id - vocab.begin), to);
    } else {
      std::memset(to, 0, static_cast<std::size_t>(D) * sizeof(float));
    }
  }
}

void check_batch(const PackedBatch& batch, const ModelConfig& config) {
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t t = 0; t < batch.num_tokens(); ++t) {
    MAGISTER_CHECK(ids[t] >= 0 && ids[t] < config.vocab_size, ExitCode::kData,
                   "token id {} stands outside the model's vocabulary of {} (there is no embedding for it); use the "
                   "tokenizer that belongs to the model",
                   ids[t], config.vocab_size);
  }
}

}  // namespace

at::Tensor Transformer::forward(const PackedBatch& batch, const std::function<bool()>& should_stop) {
  if (layers_->gpu) {
    check_batch(batch, layers_->config);
    return should_stop && should_stop() ? at::Tensor() : layers_->gpu->forward(batch, {}, nullptr);
  }
  const LayerShape& shape = layers_->decoder.front().shape();
  const BatchPages pages(batch);
  std::vector<KvPages> kv;  // one layer's, for all
  kv.emplace_back(shape.kv_heads, pages.num_pages(), shape.head_dim);
  return run_layers(batch, pages.sequences, kv, should_stop);
}

at::Tensor Transformer::forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) {
  MAGISTER_ASSERT(static_cast<std::int64_t>(slots.size()) == batch.num_sequences());
  if (layers_->gpu) {
    check_batch(batch, layers_->config);
    return layers_->gpu->forward(batch, slots, &cache);
  }
  return run_layers(batch, slots, cache.layers, {});
}

KvCache Transformer::make_cache(std::int64_t num_pages) const {
  if (layers_->gpu) return layers_->gpu->make_cache(num_pages);
  KvCache cache;
  cache.num_pages = num_pages;
  for (const DecoderLayer& layer : layers_->decoder) {
    cache.layers.emplace_back(layer.shape().kv_heads, num_pages, layer.shape().head_dim);
  }
  return cache;
}

at::Tensor Transformer::logits(const at::Tensor& hidden_RD) const {
  if (layers_->gpu) return gpu::product(layers_->gpu->head(), hidden_RD, at::kFloat, layers_->gpu->queue());
  return logits_of(layers_->lm_head, hidden_RD, *layers_->pool);
}

at::Tensor logits_of(const LmHead& lm_head, const at::Tensor& hidden_RD, ThreadPool& pool) {
  const Linear& head = lm_head.projection;
  if (lm_head.gpu) {
    return gpu::product_of_tile(gpu::to_device(head, head.weight_NK.device()), hidden_RD, at::kFloat, *lm_head.gpu);
  }
  const std::int64_t rows = hidden_RD.size(0), D = hidden_RD.size(1), columns = head.out_features();
  at::Tensor logits_Rv = at::empty({rows, columns}, hidden_RD.options());
  constexpr std::int64_t kColumns = 20 * Linear::kPanel;
  pool.run((columns + kColumns - 1) / kColumns, [&](std::int64_t slice, int) {
    const std::int64_t begin = slice * kColumns, end = std::min(begin + kColumns, columns);
    linear_tile(hidden_RD.const_data_ptr<float>(), D, rows, head.outputs(begin, end),
                logits_Rv.data_ptr<float>() + begin, columns, false);
  });
  return logits_Rv;
}

at::Tensor Transformer::run_layers(const PackedBatch& batch, const std::vector<BlockTable>& slots,
                                   std::vector<KvPages>& kv, const std::function<bool()>& should_stop,
                                   const std::function<void(std::int64_t, const at::Tensor&)>& after_layer) {
  check_batch(batch, layers_->config);
  ThreadPool& pool = *layers_->pool;
  ProcessGroup& group = *layers_->group;
  const bool alone = group.tp_size() == 1;
  const std::int64_t T = batch.num_tokens(), D = layers_->config.hidden_size;
  const auto f32 = at::TensorOptions().dtype(at::kFloat);
  at::Tensor hidden_TD = at::empty({T, D}, f32), partial_TD;
  if (T == 0) return hidden_TD;
  float* hidden = hidden_TD.data_ptr<float>();

  const RopeTables tables = layers_->rope_tables(batch);
  const LayerShape& shape = layers_->decoder.front().shape();
  LayerBuffers buffers(batch, slots, shape, pool.num_threads());
  const std::vector<AttentionTile> attention = attention_tiles(batch, shape);
  if (!alone) partial_TD = at::empty({T, D}, f32);
  float* partial = alone ? hidden : partial_TD.data_ptr<float>();
  // Sums the shards' partial products and adds them to the residual stream.
  const auto add_partial = [&] {
    if (alone) return;
    group.all_reduce_sum(partial_TD);
    for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
      for (std::int64_t i = begin * D; i < end * D; ++i) hidden[i] += partial[i];
    });
  };

  for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
    embed_rows(layers_->embedding, layers_->partition.vocab, batch, begin, end, hidden);
  });
  if (!alone) group.all_reduce_sum(hidden_TD);
  if (after_layer) after_layer(-1, hidden_TD);
  for (std::size_t i = 0; i < layers_->decoder.size(); ++i) {
    const DecoderLayer& layer = layers_->decoder[i];
    KvPages& pages = kv[kv.size() == 1 ? 0 : i];
    if (should_stop && should_stop()) return {};
    for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
      layer.project_qkv(hidden, batch, begin, end, tables.rows, pages, buffers, thread, shared);
    });
    pool.run(static_cast<std::int64_t>(attention.size()),
             [&](std::int64_t tile, int thread) { layer.attend(attention[tile], pages, buffers, thread); });
    for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
      layer.project_output(begin, end, buffers, partial, alone, shared);
      if (alone) layer.mlp(hidden, begin, end, buffers, thread, hidden, true, shared);
    });
    if (!alone) {
      add_partial();
      for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
        layer.mlp(hidden, begin, end, buffers, thread, partial, false, shared);
      });
      add_partial();
    }
    if (after_layer) after_layer(static_cast<std::int64_t>(i), hidden_TD);
  }
  for_row_tiles(pool, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool*) {
    cpu_kernels().rms_norm(hidden + begin * D, D, layers_->norm_D.const_data_ptr<float>(), shape.rms_norm_eps,
                           hidden + begin * D, D, end - begin, D);
  });
  if (after_layer) after_layer(layers_->config.num_hidden_layers, hidden_TD);
  return hidden_TD;
}

std::string Transformer::first_not_finite(const PackedBatch& batch) {
  if (layers_->gpu) return "";
  const LayerShape& shape = layers_->decoder.front().shape();
  const BatchPages pages(batch);
  std::vector<KvPages> kv;
  kv.emplace_back(shape.kv_heads, pages.num_pages(), shape.head_dim);
  std::string found;
  run_layers(batch, pages.sequences, kv, {}, [&](std::int64_t layer, const at::Tensor& hidden_TD) {
    if (!found.empty() || at::isfinite(hidden_TD).all().item<bool>()) return;
    found = layer < 0                                   ? "the embeddings"
            : layer < layers_->config.num_hidden_layers ? fmt::format("layer {}", layer)
                                                        : "the last norm";
  });
  return found.empty() ? "the head" : found;
}

at::Tensor Transformer::forward_reference(const PackedBatch& batch) {
  MAGISTER_CHECK(!layers_->gpu, ExitCode::kInternal,
                 "the plain forward pass of a model on a GPU (it is there for CPU models); report this");
  check_batch(batch, layers_->config);
  ProcessGroup& group = *layers_->group;
  const IndexRange vocab = layers_->partition.vocab;
  const at::Tensor ids_T = batch.token_ids_T.to(at::kLong) - static_cast<std::int64_t>(vocab.begin);
  const at::Tensor mine_T = (ids_T >= 0) & (ids_T < static_cast<std::int64_t>(vocab.size()));
  at::Tensor hidden_TD =
      at::embedding(layers_->embedding.plain_weight(), ids_T.masked_fill(mine_T.logical_not(), 0)).to(at::kFloat);
  hidden_TD = hidden_TD * mine_T.unsqueeze(1);
  const auto summed = [&](at::Tensor partial_TD) {
    if (group.tp_size() > 1) group.all_reduce_sum(partial_TD);
    return partial_TD;
  };
  hidden_TD = summed(hidden_TD.contiguous());
  const RopeTables tables = layers_->rope_tables(batch);
  const at::Tensor cos_TE2 = tables.gather_cos(), sin_TE2 = tables.gather_sin();
  for (const DecoderLayer& layer : layers_->decoder) {
    hidden_TD = hidden_TD + summed(layer.reference_attention(hidden_TD, batch, cos_TE2, sin_TE2));
    hidden_TD = hidden_TD + summed(layer.reference_mlp(hidden_TD));
  }
  return layers_->norm_D * (hidden_TD * at::rsqrt(hidden_TD.pow(2).mean(-1, true) + layers_->config.rms_norm_eps));
}

double Transformer::forward_flops(const PackedBatch& batch) const {
  const ModelConfig& c = layers_->config;
  const double D = c.hidden_size, E = c.head_dim, H = c.num_attention_heads, K = c.num_key_value_heads;
  const double products = D * (H + 2 * K) * E + H * E * D + 3.0 * D * c.intermediate_size;
  double flops = 2.0 * products * batch.num_tokens();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const double length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    double visible = length * (length + 1) / 2;
    if (const double w = c.sliding_window; w > 0 && length > w) visible = w * (w + 1) / 2 + (length - w) * w;
    flops += 4.0 * visible * H * E;
  }
  return flops * c.num_hidden_layers;
}

std::uint64_t kv_page_bytes(const ModelConfig& config, const Partition& partition) {
  return 2 * sizeof(float) * KvPages::kSlots * partition.kv_heads.size() * static_cast<std::uint64_t>(config.head_dim) *
         static_cast<std::uint64_t>(config.num_hidden_layers);
}

double Transformer::head_flops(std::int64_t num_rows) const {
  return 2.0 * layers_->config.hidden_size * layers_->config.vocab_size * num_rows;
}

}  // namespace magister
