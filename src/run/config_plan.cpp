// `plan --config-only`: the memory that one device of a group would need, before weights or data exist.
#include "magister/run/config_plan.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/io/checkpoint/stored_quantization.h"
#include "magister/model/kv_codes.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"
#include "magister/model/parameter_table.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/run/device_lines.h"
#include "magister/run/task.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/rope_length.h"

namespace magister {
namespace {

constexpr int kMostDevices = 64;  // largest group that is tried; a larger one is planned only if the config requests it

// The sizes of layout.gpus_per_group, one or several; empty: auto.
std::vector<int> requested_sizes(const LayoutConfig& layout) {
  std::vector<int> sizes;
  if (layout.gpus_per_group > 0) sizes.push_back(layout.gpus_per_group);
  for (const auto& part : layout.shares.parts()) {
    if (layout.shares.mixed()) sizes.push_back(part.size);
  }
  return sizes;
}

// The group sizes 1, 2, 4, 8 and 16 and the requested ones, as far as they divide the models.
std::vector<int> listed_sizes(const std::vector<GroupModel>& models, const std::vector<int>& requested) {
  const int largest = requested.empty() ? 0 : *std::max_element(requested.begin(), requested.end());
  std::vector<int> sizes;
  for (const int size : group_sizes(models, std::max(kMostDevices, largest))) {
    const bool power = (size & (size - 1)) == 0 && size <= 16;
    if (power || std::find(requested.begin(), requested.end(), size) != requested.end()) sizes.push_back(size);
  }
  return sizes;
}

// True if no columns of a shard, in any layer, begin inside a group of weights that share a scale.
bool is_aligned(const ModelConfig& config, std::int64_t group, int tp_size) {
  for (int rank = 1; rank < tp_size; ++rank) {
    const Partition of_model = partition_for(config, rank, tp_size);
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const Partition part = layer_partition(config, of_model, layer);
      const auto values = static_cast<std::uint64_t>(shape_of(config, of_model, layer).value_dim());
      const bool has_mlp = !config.is_sparse(layer) || config.dense_beside_experts;
      for (const std::uint64_t first :
           {part.heads.begin * values, has_mlp ? part.mlp.begin : 0, config.is_sparse(layer) ? part.expert.begin : 0,
            config.is_sparse(layer) ? part.shared_expert.begin : 0}) {
        if (first % static_cast<std::uint64_t>(group) != 0) return false;
      }
    }
  }
  return true;
}

// A note for shards whose columns begin inside a group: this program computes them, other programs refuse them.
std::string alignment_note(const ModelConfig& config, const QuantScheme& scheme, int tp_size) {
  if (!scheme.on() || scheme.group == 0 || tp_size == 1) return "";
  const auto aligned = [&](int size) { return is_aligned(config, scheme.group, size); };
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

std::string formats_table(const ModelConfig& config, const std::vector<int>& sizes, bool on_gpus) {
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
      out += fmt::format("{:>12}", decimal_bytes(model_bytes(config, format.dtype, size, format.scheme, on_gpus)));
  }
  return out + "\n";
}

// The weights of the routed experts' products, without their biases.
std::uint64_t num_expert_weights(const ModelConfig& config) {
  std::uint64_t sum = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(config, layer)) {
      const bool routed = row.expert >= 0 && row.expert < config.num_experts;
      if (routed && row.product != FusedProduct::kNone) sum += num_elements(row.shape);
    }
  }
  return sum;
}

std::string experts_line(const ModelConfig& config) {
  if (config.num_experts == 0) return "";
  return fmt::format("  experts   {} with {:.2f} B weights; a token takes {} and {:.2f} B parameters in all\n",
                     config.num_experts, 1e-9 * static_cast<double>(num_expert_weights(config)),
                     config.num_experts_per_tok, 1e-9 * static_cast<double>(config.parameters_a_token()));
}

// The size of a checkpoint whose config.json says that its weights are codes: a run computes with the numbers that they
// mean, in model.dtype, and holds these. Empty for other checkpoints.
std::string stored_line(const ModelSection& section, const ModelConfig& config) {
  const std::optional<StoredQuantization> stored = stored_quantization(section.path);
  if (!stored) return "";
  const std::string read =
      "a run holds the numbers that they mean" + std::string(section.quantization == "none" ? "" : ", quantised again");
  if (stored->expert_bits == 0) return fmt::format("  file      codes of {}; {}\n", stored->method, read);
  const std::uint64_t codes = num_expert_weights(config);
  const double bytes =
      static_cast<double>(codes) * stored->expert_bits / 8 + static_cast<double>((config.num_parameters() - codes) * 2);
  return fmt::format("  file      {}: the experts' products in {} ({:.4g} bits a weight), the rest in 16 bits; {}\n",
                     decimal_bytes(static_cast<std::uint64_t>(bytes)), stored->method, stored->expert_bits, read);
}

// Describes a model whose config.json exists, as if on GPUs. Throws Error(kInputOutput) if it does not, and
// Error(kConfig) for a GGUF file.
GroupModel model_of(const ModelSection& section, const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path path(section.path);
  std::error_code ignored;
  MAGISTER_CHECK(fs::exists(path, ignored), ExitCode::kInputOutput,
                 "{}: there is no such model (its config.json is needed); name a folder with one, such as those in "
                 "configs/shapes{}",
                 printable(section.path), download_hint(section.path));
  MAGISTER_CHECK(
      path.extension() != ".gguf", ExitCode::kConfig,
      "{}: is a GGUF file (--config-only plans from a config.json); leave --config-only out, and plan reads the "
      "GGUF file itself",
      printable(section.path));
  ModelDescription described =
      describe_config((fs::is_directory(path, ignored) ? path / "config.json" : path).string());
  if (section.head_labels > 0) described = with_reward_head(described, section.head_labels);
  GroupModel model;
  model.name = name;
  model.config = described.config;
  model.dtype = section.dtype == "f32"   ? at::kFloat
                : section.dtype == "f16" ? at::kHalf
                : section.dtype == "fp8" ? at::kFloat8_e4m3fn
                                         : at::kBFloat16;
  model.scheme = quant_scheme_of(section);
  model.gpu = GpuDemand{model.dtype, model.scheme.on(), section.fp8_cache};
  return model;
}

// The task's own model, its second models, and the kind of device.
struct ConfigPlan {
  std::vector<GroupModel> models;
  std::string cpus_alone;  // why memory is counted for CPUs; empty: it is counted for GPUs
  Notes lengths;

  const GroupModel& own() const { return models.front(); }
  MemoryParts needed(int tp_size) const { return group_memory(models, tp_size); }
  // The bytes of a device that a model may use.
  std::uint64_t usable(std::uint64_t device_bytes) const {
    const double share = cpus_alone.empty() ? kUsableGpuShare : 1.0;
    return static_cast<std::uint64_t>(share * static_cast<double>(device_bytes));
  }
  // The smallest number of these devices that holds the models; 0: unknown, or no number does.
  int smallest_group(std::uint64_t device_bytes) const {
    for (const int size : group_sizes(models, kMostDevices)) {
      if (device_bytes > 0 && sum_of(needed(size)) <= usable(device_bytes)) return size;
    }
    return 0;
  }
};

ConfigPlan config_plan(Task& task, const LayoutConfig& layout) {
  const ModelSection section = task.model_section().placeholder();
  ConfigPlan plan;
  plan.models.push_back(model_of(section, ""));
  const std::string missing = missing_on_gpus(plan.own().config);
  plan.cpus_alone = !missing.empty()         ? missing + " is not computed on GPUs"
                    : section.dtype == "f16" ? "f16 is not computed on GPUs"
                    : layout.cpu_only        ? "layout.devices: cpu"
                                             : "";
  const bool on_gpus = plan.cpus_alone.empty();
  MAGISTER_CHECK(!section.cudnn_attention || (on_gpus && section.dtype != "f32"), ExitCode::kConfig,
                 "model.attention: cudnn {} (it computes in bf16 on GPUs alone); remove the key, or give the task a "
                 "`model` of its own",
                 on_gpus ? "with model.dtype: f32" : "and " + plan.cpus_alone);
  const PassLimits device = on_gpus ? kGpuPassLimits : PassLimits{};
  plan.lengths = task.fit_lengths(positions_of(plan.own().config), [](const ModelSection& other) {
    const ModelSection found = other.placeholder();
    return std::filesystem::exists(found.path) ? positions_of(model_of(found, "").config) : Positions{};
  });
  fix_rope_length(plan.models.front().config, section.rope_length > 0 ? section.rope_length : task.cached_tokens());
  MAGISTER_CHECK(
      !section.throughput_decoding || (on_gpus && section.dtype != "f32" && section.dtype != "f16"), ExitCode::kConfig,
      "model.decoding: throughput {} (it is for weights in bf16 and fp8 on GPUs); remove the key, or give the task a "
      "`model` of its own",
      on_gpus ? "with model.dtype: " + section.dtype : "and " + plan.cpus_alone);
  MAGISTER_CHECK(
      !section.fp8_cache || on_gpus, ExitCode::kConfig,
      "model.kv_cache: fp8 and {} (caches of CPUs hold f32 alone); remove the key, or give the task a `model` "
      "of its own",
      plan.cpus_alone);
  if (section.fp8_cache) check_kv_codes(plan.own().config, plan.own().dtype);
  plan.models.front().pass = task.pass_shape(device);
  plan.models.front().pages = pages_of_one_text(plan.own().pass);
  for (const SecondModel& second : task.second_models(device)) {
    GroupModel model = model_of(second.section.placeholder(), second.name);
    if (on_gpus && second.may_stand_on_cpus && !missing_on_gpus(model.config).empty()) continue;
    model.pass = second.pass;
    model.pages = second.pages;
    plan.models.push_back(std::move(model));
  }
  for (GroupModel& model : plan.models) {
    if (!on_gpus) model.gpu.reset();
    model.weight_bytes = [config = model.config, dtype = model.dtype, scheme = model.scheme, on_gpus](
                             int shard, int size) { return weight_bytes(config, dtype, shard, size, scheme, on_gpus); };
    for (const int size : requested_sizes(layout))
      partition_for(model.config, 0, size);  // refuses what cannot be divided
  }
  return plan;
}

// The bytes of the parts whose names end with `name`, over all models.
std::uint64_t bytes_of(const MemoryParts& parts, std::string_view name) {
  std::uint64_t sum = 0;
  for (const auto& [part, bytes] : parts) sum += std::string_view(part).ends_with(name) ? bytes : 0;
  return sum;
}

// Weights, passes and cache for groups of these sizes, and all parts for the sizes in `shown`.
std::string sizes_table(const ConfigPlan& plan, const std::vector<int>& sizes, const std::vector<int>& shown,
                        std::uint64_t device_bytes) {
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
  for (const int size : shown) {
    out += fmt::format("  on {}: {}\n", size, describe(plan.needed(size)));
  }
  return out;
}

// The key that gives the memory of a device.
const char* memory_key() { return planned_hosts().empty() ? "plan.device_memory" : "plan.devices"; }

// Throws Error(kConfig) if the requested groups do not fit, or if no group fits.
void check_sizes(const ConfigPlan& plan, const Task& task, const std::vector<int>& requested, int smallest,
                 std::uint64_t device_bytes) {
  const auto all_on = [&](int size) { return decimal_bytes(sum_of(plan.needed(size))); };
  MAGISTER_CHECK(smallest != 0, ExitCode::kConfig,
                 "{}: no group of 1 to {} devices of {}, of which a model may have {}, holds {} (the "
                 "smallest part is {}); choose a quantization, smaller passes or larger devices",
                 memory_key(), kMostDevices, decimal_bytes(device_bytes), decimal_bytes(plan.usable(device_bytes)),
                 printable(task.model_section().placeholder().path),
                 all_on(group_sizes(plan.models, kMostDevices).back()));
  // If there are several sizes, the smaller groups are for larger devices.
  const int most = requested.empty() ? 0 : *std::max_element(requested.begin(), requested.end());
  if (most == 0 || sum_of(plan.needed(most)) <= plan.usable(device_bytes)) return;
  const auto [needed, given] = decimal_bytes_apart(sum_of(plan.needed(most)), plan.usable(device_bytes));
  fail(ExitCode::kConfig,
       "layout.gpus_per_group: {} {} {} each, and {} gives {} (loading would fail); the "
       "smallest group that fits has {} devices, with {} each",
       format_count(static_cast<std::uint64_t>(most), "device"), most == 1 ? "needs" : "need", needed, memory_key(),
       given, smallest, all_on(smallest));
}

// The groups of a planned cluster: of the requested sizes, or of the smallest size that fits and uses all GPUs.
std::string planned_groups(const Communicator& world, const ConfigPlan& plan, LayoutConfig layout, int smallest,
                           int num_ranks) {
  layout.gpus_usable = true;
  if (layout.shares.mixed()) {
    for (const auto& part : layout.shares.parts())
      layout.needed_bytes.push_back(
          static_cast<std::uint64_t>(static_cast<double>(sum_of(plan.needed(part.size))) / kUsableGpuShare));
  } else if (layout.gpus_per_group == 0) {
    LayoutConfig by_device = layout;
    by_device.gpus_per_group = 1;
    const std::vector<DeviceRow> devices = plan_layout(world, num_ranks, by_device);
    for (const int size : group_sizes(plan.models, static_cast<int>(devices.size()))) {
      if (layout.gpus_per_group == 0 && size >= smallest && group_size_divides(devices, size))
        layout.gpus_per_group = size;
    }
    MAGISTER_CHECK(layout.gpus_per_group != 0, ExitCode::kConfig,
                   "plan.devices: {} GPUs hold no group of {} or more that divides them and the model (a copy of it "
                   "takes as many); plan with more GPUs, or choose a quantization",
                   devices.size(), smallest);
  }
  return group_lines(plan_layout(world, num_ranks, layout));
}

}  // namespace

std::string plan_from_config(const Communicator& world, Task& task, const LayoutConfig& layout,
                             std::uint64_t device_bytes, int num_ranks) {
  const ConfigPlan plan = config_plan(task, layout);
  const GroupModel& own = plan.own();
  const ModelConfig& config = own.config;
  const std::vector<int> requested = requested_sizes(layout);
  const int smallest = plan.smallest_group(device_bytes);
  const std::vector<int> shown = requested.empty() ? std::vector<int>{std::max(smallest, 1)} : requested;
  std::vector<int> listed = requested;
  listed.push_back(smallest);
  std::string out = "  model     " + describe_planned_model({config, own.dtype, own.scheme}) + "\n";
  for (std::size_t i = 1; i < plan.models.size(); ++i) {
    const GroupModel& model = plan.models[i];
    out += fmt::format("  {:<9} {}\n", model.name, describe_planned_model({model.config, model.dtype, model.scheme}));
  }
  out += experts_line(config);
  out += stored_line(task.model_section().placeholder(), config);
  if (!plan.cpus_alone.empty()) out += fmt::format("  devices   CPUs alone ({})\n", plan.cpus_alone);
  for (const auto& [key, words] : plan.lengths) out += fmt::format("  {} {}\n", key, words);
  out += formats_table(config, listed_sizes(plan.models, requested), plan.cpus_alone.empty());
  out += sizes_table(plan, listed_sizes(plan.models, listed), shown, device_bytes);
  const Partition whole = partition_for(config, 0, 1);
  const std::uint64_t page_bytes =
      own.gpu ? gpu_page_bytes(config, whole, own.gpu->dtype, own.gpu->fp8_cache) : kv_page_bytes(config, whole);
  out += fmt::format(
      "  a pass has {} tokens; keys and values are those of {} tokens, {} bytes per token over all devices\n",
      own.pass.tokens, own.pass.sequence_tokens, page_bytes / static_cast<std::uint64_t>(KvPages::kSlots));
  for (const int size : shown) out += alignment_note(config, own.scheme, size);
  if (device_bytes == 0) return out;
  if (plan.cpus_alone.empty())
    out += fmt::format("  of a GPU's {} a model may have {}\n", decimal_bytes(device_bytes),
                       decimal_bytes(plan.usable(device_bytes)));
  check_sizes(plan, task, requested, smallest, device_bytes);
  out +=
      fmt::format("  smallest group that fits: {} device{} of {}, {} used on each\n", smallest,
                  smallest == 1 ? "" : "s", decimal_bytes(device_bytes), decimal_bytes(sum_of(plan.needed(smallest))));
  return num_ranks == 0 || !plan.cpus_alone.empty() ? out
                                                    : out + planned_groups(world, plan, layout, smallest, num_ranks);
}

}  // namespace magister
