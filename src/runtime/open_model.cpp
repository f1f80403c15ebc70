// Opening a model for a task; see open_model.h.
#include "magister/runtime/open_model.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/io/results/reader.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/gpu/gpu_mxfp4.h"
#include "magister/model/host_copy.h"
#include "magister/model/kv_codes.h"
#include "magister/model/partition.h"
#include "magister/model/throughput_decoding.h"
#include "magister/model/transformer.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/parallel/host_memory.h"
#include "magister/parallel/shared_memory.h"
#include "magister/runtime/device_group.h"

namespace magister {

namespace {

// The 16-bit type that loses the least of embeddings and head: bf16 if the file has bf16, else f16, which has three
// more bits of precision.
at::ScalarType table_dtype(const OpenModel& model) {
  const TensorInfo* embeddings = model.file->find(model.description.names.embed_tokens);
  return embeddings != nullptr && embeddings->type == StorageType::kBF16 ? at::kBFloat16 : at::kHalf;
}

// Refuses dtypes and quantisation that an encoder does not support.
void check_encoder(const Checkpoint& checkpoint) {
  const ModelSection& section = checkpoint.section();
  if (!checkpoint.config().encoder) return;
  MAGISTER_CHECK(section.dtype == "auto" || section.dtype == "f32", ExitCode::kConfig,
                 "model.dtype is {}, and {} is an encoder (its weights are kept in f32 whatever the file has, and no "
                 "other type is computed); choose auto or f32",
                 section.dtype, printable(checkpoint.path()));
  MAGISTER_CHECK(section.quantization == "none", ExitCode::kConfig,
                 "model.quantization is {}, and {} is an encoder (its weights are kept in f32, and no codes are "
                 "computed); choose none",
                 section.quantization, printable(checkpoint.path()));
}

void check_fp8(const std::vector<int>& gpus, bool throughput) {
  const auto check = [throughput](const std::string& gpu, int capability) {
    MAGISTER_CHECK(capability >= 89, ExitCode::kConfig,
                   "model.dtype: fp8 on {} of compute capability {}.{} (8-bit products come with 8.9); choose bf16, or "
                   "quantization: int8",
                   gpu, capability / 10, capability % 10);
    MAGISTER_CHECK(!throughput || capability >= 90, ExitCode::kConfig,
                   "model.decoding: throughput with model.dtype: fp8 on {} of compute capability {}.{} (cuBLASLt has "
                   "scales a row from 9.0 on); choose bf16, or remove the key",
                   gpu, capability / 10, capability % 10);
  };
  for (const std::vector<GpuDevice>& host : planned_hosts()) {
    for (const GpuDevice& gpu : host) check("a planned " + gpu.name, gpu.compute_capability);
  }
  for (const int gpu : gpus) check("cuda:" + std::to_string(gpu), gpu_compute_capability(gpu));
}

// AVX512-BF16, AMX and f32 products add in different orders, so if ranks differ, all multiply bf16 weights in f32.
void agree_on_products(const Communicator& world) {
  const CpuKernels& mine = cpu_kernels();
  const std::uint64_t kind = mine.multiply_bf16 == nullptr ? 0 : std::string_view(mine.name) == "amx" ? 2 : 1;
  const bool agree = world.min(kind) == world.max(kind);
  if (agree || kind == 0) return;
  use_cpu_kernels(cpu_kernels_f32());
}

}  // namespace

QuantScheme quant_scheme_of(const ModelSection& section) {
  QuantScheme scheme = quant_scheme(section.quantization, section.quantization_group.value_or(32));
  scheme.group_given = section.quantization_group.has_value();
  return scheme;
}

OpenModel open_model(const Communicator& world, const Checkpoint& checkpoint, const std::optional<gpu::Queue>& gpu,
                     const std::vector<int>& gpus) {
  const ModelSection& section = checkpoint.section();
  OpenModel model;
  if (section.none) return model;
  model.gpu = gpu;
  model.gpus = gpus;
  model.planned_gpu = gpu && !planned_hosts().empty();
  model.file = &checkpoint.file();
  model.description = checkpoint.description();
  if (gpu) check_gpu_computes(model.description.config);
  check_encoder(checkpoint);
  model.plain_dtype = model.description.config.encoder ? at::kFloat
                      : gpu                            ? resolve_gpu_dtype(section.dtype)
                                                       : resolve_cpu_dtype(section.dtype);
  if (model.plain_dtype == at::kFloat8_e4m3fn) check_fp8(gpus, section.throughput_decoding);
  MAGISTER_CHECK(gpu || !section.cudnn_attention, ExitCode::kConfig,
                 "model.attention: cudnn on CPUs (cuDNN computes on GPUs alone); remove the key, or run on GPUs");
  MAGISTER_CHECK(!section.cudnn_attention || activation_dtype(model.plain_dtype) == at::kBFloat16, ExitCode::kConfig,
                 "model.attention: cudnn with model.dtype: {} (it computes in bf16 alone); choose bf16, remove the "
                 "key, or give tasks of another type a `model` of their own",
                 section.dtype);
  model.cudnn_attention = section.cudnn_attention;
  MAGISTER_CHECK(gpu || !section.throughput_decoding, ExitCode::kConfig,
                 "model.decoding: throughput on CPUs (it chooses among products of GPUs); remove the key, or run on "
                 "GPUs");
  MAGISTER_CHECK(!section.throughput_decoding || activation_dtype(model.plain_dtype) == at::kBFloat16,
                 ExitCode::kConfig,
                 "model.decoding: throughput with model.dtype: {} (it is for weights in bf16 and fp8); choose one of "
                 "these, remove the key, or give tasks of another type a `model` of their own",
                 section.dtype);
  // Shards may differ in their heads, so a group asks again when it loads the model.
  if (section.throughput_decoding) check_throughput_decoding(model.description.config, model.plain_dtype, 1);
  model.throughput_decoding = section.throughput_decoding;
  MAGISTER_CHECK(gpu || !section.fp8_cache, ExitCode::kConfig,
                 "model.kv_cache: fp8 on CPUs (their caches hold f32 alone); remove the key, or run on GPUs");
  if (section.fp8_cache) check_kv_codes(model.description.config, model.plain_dtype);
  model.fp8_cache = section.fp8_cache;
  // `auto` depends on the CPU: if one rank has no fast bf16, all use f32, or the rows would depend on which rank
  // computed them.
  const auto type = static_cast<std::uint64_t>(model.plain_dtype);
  if (world.min(type) != world.max(type)) model.plain_dtype = at::kFloat;
  agree_on_products(world);
  model.quantization = quant_scheme_of(section);
  model.dtype = model.quantization.on() && section.dtype == "auto" && !gpu ? table_dtype(model) : model.plain_dtype;
  model.products = quantized_products(model.description, *model.file, model.quantization);
  return model;
}

namespace {

Transformer load_model(const OpenModel& model, at::ScalarType dtype, const QuantScheme& quantization, bool fp8_cache,
                       ProcessGroup& group, ThreadPool& pool, const LoadHook& hook, const KeptWeights& kept) {
  if (model.gpu) {
    const gpu::Queue queue = model.gpu->on_host() ? *model.gpu : gpu::Queue{group.device().index(), nullptr};
    Transformer loaded(model.description, *model.file, group, pool, dtype, quantization, queue, hook, kept);
    if (model.cudnn_attention) loaded.use_cudnn_attention();
    if (model.throughput_decoding) loaded.use_throughput_decoding();
    if (fp8_cache) loaded.use_fp8_cache();
    return loaded;
  }
  return {model.description, *model.file, group, pool, dtype, quantization, hook, kept};
}

}  // namespace

Transformer OpenModel::load(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) const {
  return load_model(*this, dtype, quantization, fp8_cache, group, pool, hook, kept);
}
Transformer OpenModel::load_unquantized(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) const {
  return load_model(*this, plain_dtype, {}, false, group, pool, hook, {});
}

std::function<std::uint64_t(int)> OpenModel::shard_bytes(int tp_size) const {
  return [this, tp_size](int tp_rank) {
    if (gpu) return gpu_weight_bytes(description, *file, dtype, tp_rank, tp_size, quantization);
    return weight_bytes(description, *file, dtype, tp_rank, tp_size, quantization);
  };
}

MemoryParts OpenModel::device_memory(int tp_size, const PassShape& pass, std::uint64_t cache_pages) const {
  std::optional<GpuDemand> demand;
  if (gpu)
    demand = {plain_dtype, gpu_has_codes(description, *file, dtype, quantization), fp8_cache, throughput_decoding};
  MemoryParts parts =
      magister::device_memory(description.config, shard_bytes(tp_size), tp_size, pass, cache_pages, demand);
  if (shared.on() && tp_size == 1) {
    parts.front().first = "weights of its own";
    parts.front().second -= shared.bytes;
    parts.insert(parts.begin() + 1,
                 {fmt::format("{}/{} of the shared weights", shared.copies, shared.shards), shared.part()});
  }
  return is_second ? without_shared(std::move(parts)) : parts;
}

std::uint64_t OpenModel::page_bytes(int tp_size) const {
  const ModelConfig& config = description.config;
  const Partition partition = partition_for(config, 0, tp_size);
  return std::max<std::uint64_t>(
      gpu ? gpu_page_bytes(config, partition, plain_dtype, fp8_cache) : kv_page_bytes(config, partition), 1);
}

std::uint64_t OpenModel::cache_budget_bytes(int tp_size, const PassShape& pass) const {
  if (!gpu || (gpu->on_host() && !planned_gpu))
    return host_memory().total_bytes / 8 / static_cast<std::uint64_t>(shards_on_host);
  // Less than check_device_memory() allows, since NCCL and cuBLAS allocate their memory in between.
  const auto usable = static_cast<std::uint64_t>((kUsableGpuShare - 0.04) *
                                                 static_cast<double>(least_free_gpu_bytes(gpus, kept.store)));
  return usable - std::min(usable, sum_of(device_memory(tp_size, pass, 1)) + reserved_bytes);
}

// The name contains the type, because two types of one checkpoint are two sets of weights.
const std::string& OpenModel::keep_weights(WeightStore& store, const Attributes& identity, const std::string& prefix) {
  const AttributeValue* const sha256 = find_attribute(identity, prefix + "model_sha256");
  MAGISTER_ASSERT(sha256 != nullptr);
  // Loaded weights hold the model's config, and with it the length of its rotary frequencies.
  const std::int64_t rope_length = description.config.rope.fixed_length;
  kept = {&store, fmt::format("{} {} {} {} {}", std::get<std::string>(*sha256), device_kind(), rope_length,
                              dtype_name(dtype), layers())};
  return kept.checkpoint;
}

std::uint64_t SharedWeights::part() const {
  const auto all = static_cast<std::uint64_t>(shards);
  return (bytes * static_cast<std::uint64_t>(copies) + all - 1) / all;
}

namespace {

bool on_all(const Communicator& world, bool is_so) { return world.min(std::uint64_t{is_so ? 1u : 0u}) != 0; }

bool may_share(const OpenModel& model, int tp_size) {
  return !model.gpu && tp_size == 1 && !model.quantization.on() && !model.description.config.encoder;
}

// The copies on the host that has the most of them. ranks_a_copy: the ranks that have this rank's copy together.
// Collective over world.
int copies_on_host(const Communicator& world, int ranks_a_copy) {
  std::map<std::uint64_t, std::uint64_t> ranks;  // by the number that have a copy together
  for (const std::uint64_t number : world.split_by_host().all_gather(static_cast<std::uint64_t>(ranks_a_copy)))
    ++ranks[number];
  std::uint64_t copies = 0;
  for (const auto& [number, count] : ranks) copies += (count + number - 1) / number;
  return static_cast<int>(world.max(copies));
}

}  // namespace

void OpenModel::expect_sharing(const Communicator& world, int tp_size, int shards, bool is_planned) {
  shared = {};
  if (shards < 2 || !on_all(world, may_share(*this, tp_size))) return;
  const Communicator near = ranks_near_memory(world);
  const bool works = HostCopy::works_on(near);
  shared = {host_copy_bytes(description.config, dtype), shards, shards};
  if (!is_planned) {
    shared.copies = std::min(shards, copies_on_host(world, works ? near.size() : 1));
  } else if (on_all(world, works)) {
    shared.copies = std::min(shards, static_cast<int>(world.max(static_cast<std::uint64_t>(num_memory_nodes()))));
  }
}

void OpenModel::share_weights(const Communicator& world, int tp_size) {
  int ranks = kept.is_cached() ? kept.store->ranks_a_copy(kept.checkpoint) : 1;
  kept.host_copy = nullptr;
  if (on_all(world, may_share(*this, tp_size) && !kept.is_cached())) {
    // Panels have outputs beyond those of their weight. What finds no room there is loaded by every rank.
    const std::uint64_t bytes = weight_bytes(description, *file, dtype, 0, 1, quantization);
    const Communicator near = ranks_near_memory(world);
    kept.host_copy = HostCopy::make(near, bytes + bytes / 8);
    if (kept.host_copy != nullptr) ranks = near.size();
  }
  if (shared.bytes > 0) shared.copies = std::min(shared.shards, copies_on_host(world, ranks));
}

std::string OpenModel::layers() const {
  if (!quantization.on()) return "";
  const char* type = quantization.type == QuantType::kInt8 ? "int8" : "int4";
  std::string text = fmt::format("layers {}:", type);
  if (products.kept > 0) text += fmt::format(" {} products with the file's own codes", products.kept);
  if (products.made > 0)
    text += fmt::format("{} {} made in groups of {}", products.kept > 0 ? "," : "", products.made, quantization.group);
  return text;
}

std::string OpenModel::bf16_products() const {
  if (gpu || dtype != at::kBFloat16) return "";
  return cpu_kernels().multiply_bf16 != nullptr ? cpu_kernels().name : "f32";
}

nlohmann::ordered_json OpenModel::log_fields() const {
  const char* type = !quantization.on() ? "none" : quantization.type == QuantType::kInt8 ? "int8" : "int4";
  nlohmann::ordered_json fields = {{"device", device_kind()}, {"dtype", dtype_name(dtype)}, {"quantization", type}};
  if (!gpu) fields["cpu_kernels"] = cpu_kernels().name;
  if (fp8_cache) fields["kv_cache"] = "fp8";
  if (quantization.on())
    fields.update(
        {{"products_kept", products.kept}, {"products_made", products.made}, {"made_group", quantization.group}});
  return fields;
}

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kFloat ? "f32" : dtype == at::kBFloat16 ? "bf16" : dtype == at::kFloat8_e4m3fn ? "fp8" : "f16";
}

}  // namespace magister
