// Memory of devices before there are any; see memory_plan.h. Everything comes from the config's shapes.
#include "magister/run/memory_plan.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/engine/logit_reducer.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/run/open_model.h"

namespace magister {
namespace {

constexpr int kMostDevices = 64;  // of a group that is looked for; larger ones are planned when they are asked for

std::string decimal_bytes(std::uint64_t bytes) {
  return bytes < 10'000'000'000 ? fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9)
                                : fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

std::string quantization_words(const QuantScheme& scheme) {
  if (!scheme.on()) return "";
  const char* type = scheme.type == QuantType::kInt8 ? "int8" : "int4";
  return scheme.group == 0 ? fmt::format("{}, one scale an output", type)
                           : fmt::format("{} in groups of {}", type, scheme.group);
}

std::string model_words(const PlannedModel& model) {
  if (model.config.family.empty()) return "none";
  const auto parameters = static_cast<double>(model.config.num_parameters());
  const std::string size =
      parameters < 1e9 ? fmt::format("{:.1f} M", parameters * 1e-6) : fmt::format("{:.2f} B", parameters * 1e-9);
  std::string words = fmt::format("{}, {} parameters, {}", model.config.family, size, dtype_name(model.dtype));
  if (!model.quantization.on()) return words;
  return words + ", " + (model.layers.empty() ? "layers " + quantization_words(model.quantization) : model.layers);
}

std::uint64_t pages_of(std::uint64_t tokens) { return (tokens + KvPages::kSlots - 1) / KvPages::kSlots; }

// 1, 2, 4, ... and the requested size, of those that divide the model.
std::vector<int> listed_sizes(const ModelConfig& config, int requested) {
  std::vector<int> sizes;
  for (const int size : working_tp_sizes(config, std::max(kMostDevices, requested))) {
    const bool power = (size & (size - 1)) == 0 && size <= 16;
    if (power || size == requested) sizes.push_back(size);
  }
  return sizes;
}

// Where a shard's columns begin inside a group of weights that share a scale: it works here, and other programs refuse it.
std::string alignment_note(const ModelConfig& config, const QuantScheme& scheme, int tp_size) {
  if (!scheme.on() || scheme.group == 0 || tp_size == 1) return "";
  const auto aligned = [&](int size) {
    for (int rank = 1; rank < size; ++rank) {
      const Partition part = partition_for(config, rank, size);
      const auto group = static_cast<std::uint64_t>(scheme.group);
      if (part.mlp.begin % group != 0 || part.heads.begin * static_cast<std::uint64_t>(config.head_dim) % group != 0)
        return false;
    }
    return true;
  };
  if (aligned(tp_size)) return "";
  std::string sizes;
  for (const int size : working_tp_sizes(config, 16)) {
    if (aligned(size)) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  }
  return fmt::format(
      "  groups of {} do not divide evenly over {} devices ({} columns of the MLP are {:.10g} groups): shards that "
      "begin inside a group read the whole of it for its scale, and the weights stay those of one device; no group is "
      "cut with {} devices\n",
      scheme.group, tp_size, config.intermediate_size,
      static_cast<double>(config.intermediate_size) / static_cast<double>(scheme.group), sizes);
}

std::string formats_table(const ModelConfig& config, const std::vector<int>& sizes) {
  struct Format {
    const char* name;
    at::ScalarType dtype;
    QuantScheme scheme;
  };
  const Format formats[] = {{"f32", at::kFloat, {}},
                            {"bf16, f16", at::kBFloat16, {}},
                            {"int8, one scale", at::kBFloat16, {QuantType::kInt8, 0}},
                            {"int8, groups of 128", at::kBFloat16, {QuantType::kInt8, 128}},
                            {"int4, groups of 128", at::kBFloat16, {QuantType::kInt4, 128}},
                            {"int4, groups of 32", at::kBFloat16, {QuantType::kInt4, 32}}};
  std::string out = fmt::format("  {:<24}", "weights per device");
  for (const int size : sizes) out += fmt::format("{:>12}", fmt::format("on {}", size));
  for (const Format& format : formats) {
    out += fmt::format("\n    {:<22}", format.name);
    for (const int size : sizes)
      out += fmt::format("{:>12}", decimal_bytes(model_bytes(config, format.dtype, size, format.scheme)));
  }
  return out + "\n";
}

}  // namespace

std::uint64_t sum_of(const MemoryParts& parts) {
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  return sum;
}

namespace {

MemoryParts cpu_parts(const ModelConfig& config, const Partition& part, std::uint64_t weights, const PassShape& pass,
                      std::uint64_t cache_pages) {
  MemoryParts parts = {{"weights", weights},
                       {"activations", activation_bytes(config, part, static_cast<std::int64_t>(pass.tokens), 1)}};
  if (cache_pages > 0) parts.emplace_back("keys and values", cache_pages * kv_page_bytes(config, part));
  return parts;
}

MemoryParts gpu_parts(const ModelConfig& config, const Partition& part, std::uint64_t weights, const PassShape& pass,
                      std::uint64_t cache_pages, const GpuDemand& gpu) {
  const auto D = static_cast<std::uint64_t>(config.hidden_size), E = static_cast<std::uint64_t>(config.head_dim);
  const at::ScalarType type = activation_dtype(gpu.dtype);
  MemoryParts parts = {{"weights", weights},
                       {"activations", gpu_activation_bytes(config, part, static_cast<std::int64_t>(pass.tokens),
                                                            static_cast<std::int64_t>(pass.sequence_tokens), type)},
                       {"a tile of logits", LogitReducer::kGpuTileRows * part.vocab.size() * sizeof(float)}};
  if (gpu.quantized)
    parts.emplace_back("a plain product", 2 * part.mlp.size() * D * c10::elementSize(type));  // gate and up
  if (cache_pages > 0) {
    parts.emplace_back("gathered keys", gpu_gathered_bytes(config, part, static_cast<std::int64_t>(pass.tokens),
                                                           static_cast<std::int64_t>(pass.sequence_tokens), type));
    // One page more, which idle rows write to; and the sums of every 192 keys of a decoding pass, in powers of two.
    parts.emplace_back("keys and values",
                       (cache_pages + 1) * kv_page_bytes(config, part) / sizeof(float) * c10::elementSize(type));
    const std::uint64_t chunks = std::bit_ceil((pass.sequence_tokens + 191) / 192 + 1);
    const auto rows = static_cast<std::uint64_t>(gpu_decoding_rows(gpu.dtype));
    parts.emplace_back("decoding", rows * part.heads.size() * chunks * (E + 2) * sizeof(float));
  }
  return parts;
}

}  // namespace

MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu) {
  MemoryParts largest;
  for (int shard = 0; shard < tp_size; ++shard) {
    const Partition part = partition_for(config, shard, tp_size);
    MemoryParts parts = gpu ? gpu_parts(config, part, shard_bytes(shard), pass, cache_pages, *gpu)
                            : cpu_parts(config, part, shard_bytes(shard), pass, cache_pages);
    if (pass.row_bytes > 0) parts.emplace_back("rows of a unit", pass.row_bytes);
    if (sum_of(parts) > sum_of(largest)) largest = std::move(parts);
  }
  return largest;
}

void plan_devices(PlanReport& report, int num_ranks, const LayoutConfig& layout, const PlannedModel& model) {
  report.devices = plan_layout(num_ranks, layout);
  for (const DeviceRow& row : report.devices) {
    report.num_groups = std::max(report.num_groups, row.group_index + 1);
    report.tp_size = std::max(report.tp_size, row.tp_rank + 1);
  }
  report.model = model_words(model);
}

std::string plan_from_config(const ModelSection& section, const PassShape& pass, int gpus_per_group,
                             std::uint64_t device_bytes) {
  namespace fs = std::filesystem;
  const fs::path path(section.path);
  std::error_code ignored;
  if (const std::string hint = download_hint(section.path); !hint.empty() && !fs::exists(path, ignored)) {
    fail(ExitCode::kInputOutput, "{}: there is no such model (its config.json is needed){}", printable(section.path),
         hint);
  }
  const ModelDescription description =
      describe_config((fs::is_directory(path, ignored) ? path / "config.json" : path).string());
  const ModelConfig& config = description.config;
  const at::ScalarType dtype = section.dtype == "f32"   ? at::kFloat
                               : section.dtype == "f16" ? at::kHalf
                               : section.dtype == "fp8" ? at::kFloat8_e4m3fn
                                                        : at::kBFloat16;
  const QuantScheme scheme = quant_scheme_of(section);
  if (gpus_per_group > 0) partition_for(config, 0, gpus_per_group);  // refuses what cannot be divided
  const auto needed = [&](int size) {
    const auto weights = [&](int shard) { return weight_bytes(config, dtype, shard, size, scheme); };
    return device_memory(config, weights, size, pass, pages_of(pass.sequence_tokens));
  };
  int smallest = 0;
  for (const int size : working_tp_sizes(config, kMostDevices)) {
    if (device_bytes == 0 || smallest != 0) break;
    if (sum_of(needed(size)) <= device_bytes) smallest = size;
  }

  std::string out = "  model     " + model_words({config, dtype, scheme}) + "\n";
  if (const std::string missing = missing_on_gpus(config); !missing.empty())
    out += fmt::format("  devices   CPUs alone ({} is not computed on GPUs)\n", missing);
  out += formats_table(config, listed_sizes(config, gpus_per_group));
  out += fmt::format("  {:<12}{:>12}{:>14}{:>18}{:>12}   {}\n", "this plan", "weights", "a pass", "keys and values",
                     "in all", device_bytes == 0 ? "" : "of " + decimal_bytes(device_bytes));
  for (const int size : listed_sizes(config, std::max(gpus_per_group, smallest))) {
    const MemoryParts parts = needed(size);
    const std::uint64_t cache = pass.sequence_tokens == 0 ? 0 : parts[2].second;
    out += fmt::format("    {:<10}{:>12}{:>14}{:>18}{:>12}   {}\n", fmt::format("on {}", size),
                       decimal_bytes(parts[0].second), decimal_bytes(sum_of(parts) - parts[0].second - cache),
                       decimal_bytes(cache), decimal_bytes(sum_of(parts)),
                       device_bytes == 0               ? ""
                       : sum_of(parts) <= device_bytes ? "fits"
                                                       : "does not fit");
  }
  out += fmt::format(
      "  a pass has {} tokens; keys and values are those of {} tokens, {} bytes per token over all devices (f32; half "
      "of it in 16 bit)\n",
      pass.tokens, pass.sequence_tokens,
      kv_page_bytes(config, partition_for(config, 0, 1)) / static_cast<std::uint64_t>(KvPages::kSlots));
  out += alignment_note(config, scheme, gpus_per_group > 0 ? gpus_per_group : std::max(smallest, 1));
  if (device_bytes == 0) return out;
  MAGISTER_CHECK(smallest != 0, ExitCode::kConfig,
                 "plan.device_memory: no group of 1 to {} devices of {} holds {} (the smallest part is {}); "
                 "choose a quantization, smaller passes or larger devices",
                 kMostDevices, decimal_bytes(device_bytes), printable(section.path),
                 decimal_bytes(sum_of(needed(static_cast<int>(working_tp_sizes(config, kMostDevices).size())))));
  MAGISTER_CHECK(gpus_per_group == 0 || sum_of(needed(gpus_per_group)) <= device_bytes, ExitCode::kConfig,
                 "layout.gpus_per_group: {} devices need {} each, and plan.device_memory gives {} (loading would "
                 "fail); the smallest group that fits has {} devices, with {} each",
                 gpus_per_group, decimal_bytes(sum_of(needed(gpus_per_group))), decimal_bytes(device_bytes), smallest,
                 decimal_bytes(sum_of(needed(smallest))));
  return out + fmt::format("  smallest group that fits: {} device{} of {}, {} used on each\n", smallest,
                           smallest == 1 ? "" : "s", decimal_bytes(device_bytes),
                           decimal_bytes(sum_of(needed(smallest))));
}

}  // namespace magister
