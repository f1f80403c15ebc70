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
#include "magister/model/gpu/gpu_mxfp4.h"
#include "magister/model/kv_codes.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"
#include "magister/model/parameter_table.h"
#include "magister/model/partition.h"
#include "magister/model/throughput_decoding.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/run/device_lines.h"
#include "magister/run/task.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/rope_length.h"
#include "run/planned_weights.h"

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

// Describes a model whose config.json exists, as if on GPUs: the model to open before earlier tasks have run. Throws
// Error(kInputOutput) if there is no config.json, and Error(kConfig) for a GGUF file.
GroupModel model_of(const ModelSection& named, const std::string& name) {
  const ModelSection section = named.placeholder();
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
  model.dtype = section.dtype == "f32" || model.config.encoder ? at::kFloat
                : section.dtype == "f16"                       ? at::kHalf
                : section.dtype == "fp8"                       ? at::kFloat8_e4m3fn
                                                               : at::kBFloat16;
  model.scheme = quant_scheme_of(section);
  model.gpu =
      GpuDemand{model.dtype, model.scheme.on() || keeps_mxfp4(named), section.fp8_cache, section.throughput_decoding};
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
  const ModelSection& section = task.model_section();
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
    return std::filesystem::exists(other.placeholder().path) ? positions_of(model_of(other, "").config) : Positions{};
  });
  fix_rope_length(plan.models.front().config, section.rope_length > 0 ? section.rope_length : task.cached_tokens());
  MAGISTER_CHECK(
      !section.throughput_decoding || (on_gpus && section.dtype != "f32" && section.dtype != "f16"), ExitCode::kConfig,
      "model.decoding: throughput {} (it is for weights in bf16 and fp8 on GPUs); remove the key, or give the task a "
      "`model` of its own",
      on_gpus ? "with model.dtype: " + section.dtype : "and " + plan.cpus_alone);
  if (section.throughput_decoding) check_throughput_decoding(plan.own().config, plan.own().dtype, 1);
  MAGISTER_CHECK(
      !section.fp8_cache || on_gpus, ExitCode::kConfig,
      "model.kv_cache: fp8 and {} (caches of CPUs hold f32 alone); remove the key, or give the task a `model` "
      "of its own",
      plan.cpus_alone);
  if (section.fp8_cache) check_kv_codes(plan.own().config, plan.own().dtype);
  plan.models.front().pass = task.pass_shape(device);
  plan.models.front().pages = pages_of_one_text(plan.own().pass);
  for (const SecondModel& second : task.second_models(device)) {
    GroupModel model = model_of(second.section, second.name);
    if (on_gpus && second.may_stand_on_cpus && !missing_on_gpus(model.config).empty()) continue;
    model.pass = second.pass;
    model.pages = second.pages;
    plan.models.push_back(std::move(model));
  }
  for (GroupModel& model : plan.models) {
    if (!on_gpus) model.gpu.reset();
    model.weight_bytes = [config = model.config, dtype = model.dtype, scheme = model.scheme, on_gpus,
                          mxfp4 = model.gpu && model.gpu->quantized && !model.scheme.on()](int shard, int size) {
      return weight_bytes(config, dtype, shard, size, scheme, on_gpus) -
             (mxfp4 ? saved_by_mxfp4(config, shard, size) : 0);
    };
    for (const int size : requested_sizes(layout))
      partition_for(model.config, 0, model.shards_of(size));  // refuses what cannot be divided
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

// Says that the plan, which knows no host, counts weights for each CPU shard. Empty for weights that ranks never share.
const char* copies_line(const GroupModel& model) {
  if (model.config.encoder || model.scheme.on()) return "";
  return "  copies    one for each shard; ranks of one host that hold whole models share most of the weights where "
         "its\n"
         "            kernel gives shared memory huge pages, and need less\n";
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
  out += stored_line(task.model_section(), config, plan.cpus_alone.empty());
  if (!plan.cpus_alone.empty())
    out += fmt::format("  devices   CPUs alone ({})\n{}", plan.cpus_alone, copies_line(own));
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
