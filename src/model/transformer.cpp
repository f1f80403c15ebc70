// Code that all backends share: packing, checks of a batch, and the choice of a backend.
#include "magister/model/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "magister/core/error.h"
#include "magister/core/spare_memory.h"
#include "magister/device/upload.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/host_copy.h"
#include "magister/model/layer_shape.h"
#include "magister/model/parameter_table.h"
#include "magister/model/partition.h"
#include "model/cpu/cpu_model.h"
#include "model/cpu/encoder_model.h"
#include "model/gpu/fixed_product.h"
#include "model/gpu/gpu_backend.h"
#include "model/gpu/gpu_encoder.h"

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

namespace {

// Everything that decides the loaded weights in addition to the file.
std::string loaded_as(at::ScalarType dtype, const QuantScheme& quantization) {
  return fmt::format("{}, {} {} {}", static_cast<int>(dtype), static_cast<int>(quantization.type), quantization.group,
                     quantization.group_given);
}

std::unique_ptr<ModelBackend> cpu_backend(const ModelDescription& description, const TensorFile& file,
                                          ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
                                          const QuantScheme& quantization, const LoadHook& hook,
                                          const KeptWeights& kept) {
  const auto stored = [&file](const auto& weights) {
    release_pages_of(file.paths());
    release_spare_memory();  // what reading left
    return StoredWeights{weights, weights->num_bytes};
  };
  const auto stored_by_ranks = [&](const std::shared_ptr<const CpuWeights>& weights) {
    StoredWeights out = stored(weights);
    if (weights->shared_bytes == 0) return out;
    out.num_ranks = kept.host_copy->num_ranks();
    out.num_bytes -= weights->shared_bytes - weights->shared_bytes / static_cast<std::uint64_t>(out.num_ranks);
    return out;
  };
  if (description.config.encoder) {
    MAGISTER_ASSERT(dtype == at::kFloat && !quantization.on());
    const auto load = [&] {
      release_spare_memory();
      return stored(std::make_shared<const EncoderWeights>(load_cpu_encoder(description, file, pool, hook)));
    };
    // The layout of packed weights depends on the kernels.
    const std::string shard = fmt::format("encoder, {}", cpu_kernels().name);
    return std::make_unique<EncoderModel>(kept.get<EncoderWeights>(shard, load, hook), pool);
  }
  const int tp_rank = group.tp_rank(), tp_size = group.tp_size();
  const auto load = [&] {
    release_spare_memory();
    return stored_by_ranks(std::make_shared<const CpuWeights>(
        load_cpu_weights(description, file, tp_rank, tp_size, dtype, quantization, pool, hook, kept.host_copy)));
  };
  const std::string shard =
      fmt::format("{} of {}, {}, {}", tp_rank, tp_size, loaded_as(dtype, quantization), cpu_kernels().name);
  return std::make_unique<CpuModel>(kept.get<CpuWeights>(shard, load, hook), group, pool);
}

}  // namespace

Transformer::Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                         ThreadPool& pool, at::ScalarType dtype, const QuantScheme& quantization, const LoadHook& hook,
                         const KeptWeights& kept)
    : backend_(cpu_backend(description, file, group, pool, dtype, quantization, hook, kept)),
      group_(&group),
      pool_(&pool) {}
Transformer::Transformer(const ModelDescription& description, const TensorFile& file, ProcessGroup& group,
                         ThreadPool& pool, at::ScalarType dtype, const QuantScheme& quantization,
                         const gpu::Queue& queue, const LoadHook& hook, const KeptWeights& kept)
    : group_(&group), pool_(&pool) {
  const std::string place = gpu::describe_gpu_shard(group, queue);
  if (description.config.encoder) {
    MAGISTER_ASSERT(dtype == at::kFloat && !quantization.on());
    const auto load = [&] {
      const auto weights = gpu::load_gpu_encoder(description, file, pool, queue, hook);
      return StoredWeights{weights, weights->all.num_bytes, queue.device};
    };
    backend_ = std::make_unique<gpu::GpuEncoder>(kept.get<gpu::GpuEncoderWeights>("encoder " + place, load), queue);
    return;
  }
  const auto load = [&] {
    const auto weights = gpu::load_gpu_weights(description, file, group, pool, dtype, quantization, queue, hook);
    return StoredWeights{weights, weights->num_bytes(), queue.device};
  };
  const std::string shard = fmt::format("{}, {}", place, loaded_as(dtype, quantization));
  backend_ = std::make_unique<gpu::GpuBackend>(kept.get<gpu::GpuWeights>(shard, load), group, queue);
}
Transformer::Transformer(const ModelConfig& config, ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
                         const QuantScheme& quantization, const gpu::Queue& queue)
    : backend_(std::make_unique<gpu::GpuBackend>(gpu::random_gpu_weights(config, group, dtype, quantization, queue),
                                                 group, queue)),
      group_(&group),
      pool_(&pool) {}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

void Transformer::use_cuda_graphs(bool on) { backend_->use_cuda_graphs(on); }

void Transformer::use_cudnn_attention() { backend_->use_cudnn_attention(); }
void Transformer::use_throughput_decoding() { backend_->use_throughput_decoding(); }
void Transformer::use_fp8_cache() { backend_->use_fp8_cache(); }
const gpu::Queue* Transformer::queue() const { return backend_->queue(); }
bool Transformer::separates_prefill() const { return backend_->separates_prefill(); }
bool Transformer::takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const {
  return backend_->takes_drawn_ids(rows, tokens);
}
bool Transformer::shares_prefixes() const { return backend_->shares_prefixes(); }
const LmHead& Transformer::lm_head() const { return backend_->lm_head(); }
const ModelConfig& Transformer::config() const { return backend_->config(); }
std::uint64_t Transformer::weight_bytes() const { return backend_->weight_bytes(); }
bool Transformer::has_codes() const { return backend_->has_codes(); }
bool Transformer::multiplies_fp8() const { return backend_->multiplies_fp8(); }
KvCache Transformer::make_cache(std::int64_t num_pages, std::int64_t num_texts) const {
  return backend_->make_cache(num_pages, num_texts);
}
at::Tensor Transformer::logits(const at::Tensor& hidden_RD) const { return backend_->logits(hidden_RD); }
std::string Transformer::first_not_finite(const PackedBatch& batch) { return backend_->first_not_finite(batch); }
void Transformer::self_test() {
  backend_->self_test();
  if (backend_->queue() == nullptr) release_spare_memory();  // plain ATen code that no pass needs
}

namespace {

void check_batch(const PackedBatch& batch, const ModelConfig& config) {
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t t = 0; t < batch.num_tokens(); ++t) {
    MAGISTER_CHECK(ids[t] >= 0 && ids[t] < config.table_rows(), ExitCode::kData,
                   "token id {} is outside the model's vocabulary of {} (there is no embedding for it); use the "
                   "tokenizer that belongs to the model",
                   ids[t], config.table_rows());
    MAGISTER_CHECK(config.first_other_id == 0 || ids[t] < config.first_other_id, ExitCode::kData,
                   "token id {} stands for a part of an image or a sound (ids from {} on do, and only texts are "
                   "computed); use other records",
                   ids[t], config.first_other_id);
  }
}

// The rows of a pass that are read. Here alone is decided whether the last layer computes no others.
at::Tensor read_by(const ModelBackend& backend, const PackedBatch& batch,
                   const std::function<at::Tensor(const PackedBatch&)>& pass) {
  if (!batch.read_rows) return pass(batch);
  const std::vector<std::int64_t>& rows = *batch.read_rows;
  MAGISTER_ASSERT(std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end() &&
                  (rows.empty() || (rows.front() >= 0 && rows.back() < batch.num_tokens())));
  const bool reads_all = std::ssize(rows) == batch.num_tokens();
  if (backend.narrows_last_layer() && !reads_all) return pass(batch);
  PackedBatch whole = batch;
  whole.read_rows.reset();
  const at::Tensor hidden_TD = pass(whole);
  return reads_all || !hidden_TD.defined() ? hidden_TD : rows_that_are_read(batch, hidden_TD);
}

}  // namespace

at::Tensor rows_that_are_read(const PackedBatch& batch, const at::Tensor& hidden_TD) {
  if (!batch.read_rows) return hidden_TD;
  return hidden_TD.index_select(0, upload(at::tensor(*batch.read_rows, at::kLong), hidden_TD.device()));
}

at::Tensor Transformer::forward(const PackedBatch& batch, const std::function<bool()>& should_stop) {
  check_batch(batch, config());
  return read_by(*backend_, batch, [&](const PackedBatch& one) { return backend_->forward(one, should_stop); });
}

at::Tensor Transformer::forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) {
  MAGISTER_ASSERT(static_cast<std::int64_t>(slots.size()) == batch.num_sequences());
  check_batch(batch, config());
  return read_by(*backend_, batch, [&](const PackedBatch& one) { return backend_->forward(one, slots, cache); });
}

at::Tensor Transformer::forward_reference(const PackedBatch& batch) {
  check_batch(batch, config());
  return backend_->forward_reference(batch);
}

void LmHead::cap(float* logits, std::int64_t count) const {
  if (softcap > 0) cpu_kernels().softcap(logits, count, 1.0f, static_cast<float>(softcap));
}

at::Tensor LmHead::capped(const at::Tensor& logits) const {
  return softcap > 0 ? logits.div_(softcap).tanh_().mul_(softcap) : logits;
}

at::Tensor logits_of(const LmHead& lm_head, const at::Tensor& hidden_RD, ThreadPool& pool) {
  const Linear& head = lm_head.projection;
  if (lm_head.queue && lm_head.fixed != nullptr && hidden_RD.size(0) <= kLogitRows) {
    at::Tensor logits_Rv =
        at::empty({hidden_RD.size(0), head.weight_NK.size(0)}, hidden_RD.options().dtype(at::kFloat));
    lm_head.fixed->multiply({hidden_RD.contiguous(), head.weight_NK}, logits_Rv, *lm_head.queue);
    if (head.bias_N.defined()) logits_Rv.add_(head.bias_N);
    return lm_head.capped(logits_Rv);
  }
  if (lm_head.queue) {
    return lm_head.capped(
        gpu::product_of_tile(gpu::to_device(head, head.weight_NK.device()), hidden_RD, at::kFloat, *lm_head.queue));
  }
  const std::int64_t rows = hidden_RD.size(0), D = hidden_RD.size(1), columns = head.out_features();
  at::Tensor logits_Rv = at::empty({rows, columns}, hidden_RD.options());
  constexpr std::int64_t kColumns = 20 * Linear::kPanel;
  pool.run((columns + kColumns - 1) / kColumns, [&](std::int64_t slice, int) {
    const std::int64_t begin = slice * kColumns, end = std::min(begin + kColumns, columns);
    linear_tile(hidden_RD.const_data_ptr<float>(), D, rows, head.outputs(begin, end),
                logits_Rv.data_ptr<float>() + begin, columns, false);
    if (lm_head.softcap == 0) return;
    for (std::int64_t r = 0; r < rows; ++r) lm_head.cap(logits_Rv.data_ptr<float>() + r * columns + begin, end - begin);
  });
  return logits_Rv;
}

double Transformer::forward_flops(const PackedBatch& batch) const {
  const ModelConfig& c = config();
  const auto H = static_cast<double>(c.num_attention_heads);
  // Queries meet latents, and shares sum them.
  const double latent = c.latent ? static_cast<double>(c.latent->token_width() + c.latent->rank) : 0.0;
  double products = 0;  // per token
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(c, layer)) {
      if (row.product == FusedProduct::kNone && row.name != &TensorNames::Layer::router &&
          row.name != &TensorNames::Layer::index_weights)
        continue;
      const double used = row.expert < 0 || row.expert >= c.num_experts
                              ? 1.0
                              : static_cast<double>(c.num_experts_per_tok) / static_cast<double>(c.num_experts);
      products += used * static_cast<double>(num_elements(row.shape));
    }
  }
  double flops = 2.0 * products * static_cast<double>(batch.num_tokens());
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const auto length = static_cast<double>(batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
    const double all = c.encoder ? length * length : length * (length + 1) / 2;
    // Pairs of queries and keys if each query has at most `most` keys.
    const auto pairs = [&](std::int64_t most) {
      const auto w = static_cast<double>(most);
      return length > w ? w * (w + 1) / 2 + (length - w) * w : all;
    };
    const IndexerConfig* const indexer = c.latent && c.latent->indexer ? &*c.latent->indexer : nullptr;
    for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
      if (c.is_linear(layer)) {  // a state is read by a key and by a query, and changed
        flops += 6.0 * length * static_cast<double>(c.delta->value_heads * c.delta->key_dim * c.delta->value_dim);
        continue;
      }
      const double seen = c.slides(layer) ? pairs(c.sliding_window) : indexer ? pairs(indexer->top_k) : all;
      flops += 2.0 * seen * H * (c.latent ? latent : static_cast<double>(c.head_dim_of(layer) + c.value_dim_of(layer)));
      if (c.chooses_keys(layer)) flops += 2.0 * all * static_cast<double>(indexer->heads * indexer->head_dim);
    }
  }
  return flops;
}

std::uint64_t delta_state_bytes(const ModelConfig& config, const Partition& partition) {
  std::uint64_t numbers = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_linear(layer)) continue;
    const LayerShape shape = shape_of(config, partition, layer);
    numbers += static_cast<std::uint64_t>(shape.heads * shape.delta->state_numbers() +
                                          (shape.delta->taps - 1) * shape.qkv_features());
  }
  return numbers * sizeof(float);
}

std::uint64_t kv_page_bytes(const ModelConfig& config, const Partition& partition) {
  std::uint64_t numbers = 0;
  if (config.latent) {
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      numbers += static_cast<std::uint64_t>(config.latent->token_width() +
                                            (config.chooses_keys(layer) ? config.latent->indexer->head_dim : 0));
    return sizeof(float) * KvPages::kSlots * numbers;
  }
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.has_own_kv(layer) && !config.is_linear(layer))
      numbers += layer_partition(config, partition, layer).kv_heads.size() *
                 static_cast<std::uint64_t>(config.head_dim_of(layer) + config.value_dim_of(layer));
  }
  return sizeof(float) * KvPages::kSlots * numbers;
}

double Transformer::head_flops(std::int64_t num_rows) const {
  return 2.0 * static_cast<double>(config().hidden_size) * static_cast<double>(config().head_outputs()) *
         static_cast<double>(num_rows);
}

}  // namespace magister
