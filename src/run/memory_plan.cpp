// Memory of devices before there are any; see memory_plan.h. Everything comes from the config's shapes.
#include "magister/run/memory_plan.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
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

std::uint64_t pages_of_one_text(const PassShape& pass) {
  return pass.sequence_tokens == 0 ? 0 : (pass.sequence_tokens + KvPages::kSlots - 1) / KvPages::kSlots + 2;
}

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

// 8 channels with buffers of 4 MB, 5 MB and 0.5 MB (one for each of NCCL's protocols) to two neighbours, and what the library keeps.
constexpr std::uint64_t kNcclBytes = std::uint64_t{256} << 20;

// Rows of logits between the head and the tokens: those of the pass, the same with rows that were kept of shared prompts, and those that are
// drawn; the shard's own part twice on its way to the others.
std::uint64_t sampled_row_bytes(const ModelConfig& config, const Partition& part, std::uint64_t rows, int tp_size) {
  const std::uint64_t own = tp_size == 1 ? 0 : 2 * (part.vocab.size() + 1);
  return rows * (3 * static_cast<std::uint64_t>(config.vocab_size) + own) * sizeof(float);
}

MemoryParts gpu_parts(const ModelConfig& config, const Partition& part, std::uint64_t weights, const PassShape& pass,
                      std::uint64_t cache_pages, int tp_size, const GpuDemand& gpu) {
  const auto D = static_cast<std::uint64_t>(config.hidden_size);
  const auto longest = static_cast<std::int64_t>(pass.sequence_tokens);
  const at::ScalarType type = activation_dtype(gpu.dtype);
  MemoryParts parts = {
      {"weights", weights},
      {"activations", gpu_activation_bytes(config, part, static_cast<std::int64_t>(pass.tokens), longest, type)},
      {"a tile of logits", LogitReducer::kGpuTileRows * part.vocab.size() * sizeof(float)}};
  if (gpu.quantized)
    parts.emplace_back("a plain product", 2 * part.mlp.size() * D * c10::elementSize(type));  // gate and up
  if (cache_pages > 0) {
    parts.emplace_back("gathered keys",
                       gpu_gathered_bytes(config, part, static_cast<std::int64_t>(pass.tokens), longest, type));
    // One page more, which idle rows write to.
    parts.emplace_back("keys and values",
                       (cache_pages + 1) * kv_page_bytes(config, part) / sizeof(float) * c10::elementSize(type));
    if (const std::uint64_t decoding = gpu_decoding_bytes(config, part, longest, gpu.dtype); decoding > 0)
      parts.emplace_back("decoding", decoding);
  }
  if (pass.sampled_rows > 0)
    parts.emplace_back("sampled rows", sampled_row_bytes(config, part, pass.sampled_rows, tp_size));
  if (tp_size > 1) parts.emplace_back("NCCL", kNcclBytes);
  return parts;
}

}  // namespace

MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu) {
  MemoryParts largest;
  for (int shard = 0; shard < tp_size; ++shard) {
    const Partition part = partition_for(config, shard, tp_size);
    MemoryParts parts = gpu ? gpu_parts(config, part, shard_bytes(shard), pass, cache_pages, tp_size, *gpu)
                            : cpu_parts(config, part, shard_bytes(shard), pass, cache_pages);
    if (pass.row_bytes > 0) parts.emplace_back("rows of a unit", pass.row_bytes);
    if (sum_of(parts) > sum_of(largest)) largest = std::move(parts);
  }
  return largest;
}

void plan_devices(PlanReport& report, const PlannedModel& model) {
  for (const DeviceRow& row : report.devices) {
    report.num_groups = std::max(report.num_groups, row.group_index + 1);
    report.tp_size = std::max(report.tp_size, row.tp_rank + 1);
  }
  report.model = model_words(model);
}

namespace {

// What is planned from a config.json alone, and on which kind of device.
struct ConfigPlan {
  ModelConfig config;
  at::ScalarType dtype;
  QuantScheme scheme;
  std::string cpus_alone;  // why it is counted for CPUs; empty: for GPUs
  PassShape pass;

  MemoryParts needed(int tp_size) const {
    const auto weights = [&](int shard) { return weight_bytes(config, dtype, shard, tp_size, scheme); };
    const GpuDemand demand{dtype, scheme.on()};
    return device_memory(config, weights, tp_size, pass, pages_of_one_text(pass),
                         cpus_alone.empty() ? std::optional(demand) : std::nullopt);
  }
  // Bytes of a device that a model may have.
  std::uint64_t usable(std::uint64_t device_bytes) const {
    const double share = cpus_alone.empty() ? kUsableGpuShare : 1.0;
    return static_cast<std::uint64_t>(share * static_cast<double>(device_bytes));
  }
  // The least devices of these that hold it; 0: unknown, or none do.
  int smallest_group(std::uint64_t device_bytes) const {
    for (const int size : working_tp_sizes(config, kMostDevices)) {
      if (device_bytes > 0 && sum_of(needed(size)) <= usable(device_bytes)) return size;
    }
    return 0;
  }
};

ConfigPlan config_plan(const ModelSection& section, const std::function<PassShape(const PassLimits&)>& pass_shape,
                       const LayoutConfig& layout) {
  namespace fs = std::filesystem;
  const fs::path path(section.path);
  std::error_code ignored;
  if (const std::string hint = download_hint(section.path); !hint.empty() && !fs::exists(path, ignored)) {
    fail(ExitCode::kInputOutput, "{}: there is no such model (its config.json is needed){}", printable(section.path),
         hint);
  }
  ConfigPlan plan;
  plan.config = describe_config((fs::is_directory(path, ignored) ? path / "config.json" : path).string()).config;
  plan.dtype = section.dtype == "f32"   ? at::kFloat
               : section.dtype == "f16" ? at::kHalf
               : section.dtype == "fp8" ? at::kFloat8_e4m3fn
                                        : at::kBFloat16;
  plan.scheme = quant_scheme_of(section);
  const std::string missing = missing_on_gpus(plan.config);
  plan.cpus_alone = !missing.empty()         ? missing + " is not computed on GPUs"
                    : section.dtype == "f16" ? "f16 is not computed on GPUs"
                    : layout.cpu_only        ? "layout.devices: cpu"
                                             : "";
  plan.pass = pass_shape(plan.cpus_alone.empty() ? kGpuPassLimits : PassLimits{});
  if (layout.gpus_per_group > 0)
    partition_for(plan.config, 0, layout.gpus_per_group);  // refuses what cannot be divided
  return plan;
}

std::uint64_t bytes_of(const MemoryParts& parts, std::string_view name) {
  for (const auto& [part, bytes] : parts) {
    if (part == name) return bytes;
  }
  return 0;
}

// Weights, passes and cache for groups of these sizes, and all parts for the last of them.
std::string sizes_table(const ConfigPlan& plan, const std::vector<int>& sizes, int shown, std::uint64_t device_bytes) {
  std::string out =
      fmt::format("  {:<12}{:>12}{:>14}{:>18}{:>12}   {}\n", "this plan", "weights", "a pass", "keys and values",
                  "in all", device_bytes == 0 ? "" : "of " + decimal_bytes(device_bytes));
  for (const int size : sizes) {
    const MemoryParts parts = plan.needed(size);
    const std::uint64_t all = sum_of(parts), weights = bytes_of(parts, "weights"),
                        cache = bytes_of(parts, "keys and values");
    const bool fits = all <= plan.usable(device_bytes);
    out += fmt::format("    {:<10}{:>12}{:>14}{:>18}{:>12}   {}\n", fmt::format("on {}", size), decimal_bytes(weights),
                       decimal_bytes(all - weights - cache), decimal_bytes(cache), decimal_bytes(all),
                       device_bytes == 0 ? ""
                       : fits            ? "fits"
                                         : "does not fit");
  }
  std::string list;
  for (const auto& [name, bytes] : plan.needed(shown))
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, format_bytes(bytes));
  return out + fmt::format("  on {}: {}\n", shown, list);
}

}  // namespace

std::string plan_from_config(const ModelSection& section,
                             const std::function<PassShape(const PassLimits& device)>& pass_shape,
                             const LayoutConfig& layout, std::uint64_t device_bytes) {
  const ConfigPlan plan = config_plan(section, pass_shape, layout);
  const ModelConfig& config = plan.config;
  const int gpus_per_group = layout.gpus_per_group, smallest = plan.smallest_group(device_bytes),
            shown = gpus_per_group > 0 ? gpus_per_group : std::max(smallest, 1);
  std::string out = "  model     " + model_words({config, plan.dtype, plan.scheme}) + "\n";
  if (!plan.cpus_alone.empty()) out += fmt::format("  devices   CPUs alone ({})\n", plan.cpus_alone);
  out += formats_table(config, listed_sizes(config, gpus_per_group));
  out += sizes_table(plan, listed_sizes(config, std::max(gpus_per_group, smallest)), shown, device_bytes);
  const std::size_t number_bytes = plan.cpus_alone.empty() ? c10::elementSize(activation_dtype(plan.dtype)) : 4;
  out += fmt::format(
      "  a pass has {} tokens; keys and values are those of {} tokens, {} bytes per token over all devices\n",
      plan.pass.tokens, plan.pass.sequence_tokens,
      kv_page_bytes(config, partition_for(config, 0, 1)) / sizeof(float) * number_bytes /
          static_cast<std::uint64_t>(KvPages::kSlots));
  out += alignment_note(config, plan.scheme, shown);
  if (device_bytes == 0) return out;
  if (plan.cpus_alone.empty())
    out += fmt::format("  of a GPU's {} a model may have {}\n", decimal_bytes(device_bytes),
                       decimal_bytes(plan.usable(device_bytes)));
  const auto all_on = [&](int size) { return decimal_bytes(sum_of(plan.needed(size))); };
  MAGISTER_CHECK(smallest != 0, ExitCode::kConfig,
                 "plan.device_memory: no group of 1 to {} devices of {} holds {} (the smallest part is {}); "
                 "choose a quantization, smaller passes or larger devices",
                 kMostDevices, decimal_bytes(device_bytes), printable(section.path),
                 all_on(working_tp_sizes(config, kMostDevices).back()));
  MAGISTER_CHECK(
      gpus_per_group == 0 || sum_of(plan.needed(gpus_per_group)) <= plan.usable(device_bytes), ExitCode::kConfig,
      "layout.gpus_per_group: {} devices need {} each, and plan.device_memory gives {} (loading would "
      "fail); the smallest group that fits has {} devices, with {} each",
      gpus_per_group, all_on(gpus_per_group), decimal_bytes(plan.usable(device_bytes)), smallest, all_on(smallest));
  return out + fmt::format("  smallest group that fits: {} device{} of {}, {} used on each\n", smallest,
                           smallest == 1 ? "" : "s", decimal_bytes(device_bytes), all_on(smallest));
}

}  // namespace magister
