// The group's size from the model's bytes and the memory found.
#include "magister/run/device_group.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <sstream>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/device/gpu.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/parallel/host_memory.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/memory_plan.h"
#include "magister/run/open_model.h"
#include "magister/run/task.h"

namespace magister {
namespace {

bool gpu_code_on_host() {
  const char* wanted = std::getenv("MAGISTER_GPU_CODE_ON_HOST");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

bool on_gpus(const std::vector<DeviceRow>& devices) {
  return !devices.empty() && devices.front().device.starts_with("cuda:");
}

bool fits(const MemoryParts& parts, std::uint64_t free) {
  return static_cast<double>(sum_of(parts)) <= kUsableGpuShare * static_cast<double>(free);
}

void refuse_too_much(int device, const GpuMemory& memory, int tp_size, const MemoryParts& parts) {
  if (fits(parts, memory.free_bytes)) return;
  std::string list;
  for (const auto& [name, bytes] : parts)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, format_bytes(bytes));
  fail(
      ExitCode::kConfig,
      "cuda:{} has {} free of {}, and a shard of {} needs {}: {} (loading would end without memory); use larger groups "
      "(layout.gpus_per_group), a quantization, or smaller passes",
      device, format_bytes(memory.free_bytes), format_bytes(memory.total_bytes), tp_size, format_bytes(sum_of(parts)),
      list);
}

// Empty when the shards fit.
std::string host_memory_fault(const std::string& host, const HostMemory& memory, int shards, const MemoryParts& parts) {
  const std::uint64_t needed = static_cast<std::uint64_t>(shards) * sum_of(parts);
  if (memory.free_bytes == 0 || needed <= memory.free_bytes) return "";  // 0: the system does not say
  std::string list;
  for (const auto& [name, bytes] : parts)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, format_bytes(bytes));
  const std::string limit = memory.limited_by.empty() ? "" : fmt::format(", which {} limits", memory.limited_by);
  return fmt::format(
      "{} has {} of memory free of {}{}, and its {} need {}, each {}: {} (the system would end the job in its middle); "
      "use fewer ranks on a host, groups of several shards, dtype: bf16, a quantization, or smaller passes",
      host, format_bytes(memory.free_bytes), format_bytes(memory.total_bytes), limit,
      shards == 1 ? std::string("one shard") : fmt::format("{} shards", shards), format_bytes(needed),
      format_bytes(sum_of(parts)), list);
}

// What the ranks keep on their GPUs for tasks to come, by UUID. Collective over world.
std::map<std::string, std::uint64_t> kept_bytes(const Communicator& world, const std::vector<GpuDevice>& gpus,
                                                const WeightStore* weights) {
  std::string mine;
  for (const GpuDevice& gpu : gpus) {
    const std::uint64_t bytes = weights == nullptr ? 0 : weights->gpu_bytes(gpu.index);
    if (bytes > 0) mine += fmt::format("{} {}\n", gpu.uuid, bytes);
  }
  std::map<std::string, std::uint64_t> kept;
  for (const std::string& text : world.all_gather(mine)) {
    std::istringstream words(text);
    std::string uuid;
    for (std::uint64_t bytes = 0; words >> uuid >> bytes;) kept[uuid] += bytes;
  }
  return kept;
}

// The least memory of a GPU that a rank would use which is free, or will be; 0 when a rank has none.
std::uint64_t least_free_bytes(const Communicator& world, const LayoutConfig& layout, const WeightStore* weights) {
  const std::vector<GpuDevice> gpus = discover_gpus();
  std::map<std::string, std::uint64_t> kept = kept_bytes(world, gpus, weights);
  std::uint64_t free = ~std::uint64_t{0};
  bool found = false;
  for (const GpuDevice& gpu : gpus) {
    const bool wanted = layout.devices.empty() ||
                        std::find(layout.devices.begin(), layout.devices.end(), gpu.index) != layout.devices.end();
    if (!wanted) continue;
    free = std::min(free, gpu.free_bytes + kept[gpu.uuid]);
    found = true;
  }
  return world.min(found ? free : 0);
}

// The checkpoint outlives it.
GroupModel counted(const Checkpoint& checkpoint, const PassShape& pass, std::uint64_t pages, const std::string& name) {
  check_gpu_computes(checkpoint.config());
  GroupModel model;
  model.name = name;
  model.config = checkpoint.config();
  model.dtype = resolve_gpu_dtype(checkpoint.section().dtype);
  model.scheme = quant_scheme_of(checkpoint.section());
  model.weight_bytes = [&checkpoint, dtype = model.dtype, scheme = model.scheme](int shard, int size) {
    return weight_bytes(checkpoint.description(), checkpoint.file(), dtype, shard, size, scheme);
  };
  model.pass = pass;
  model.pages = pages;
  model.gpu = GpuDemand{model.dtype, model.scheme.on()};
  return model;
}

}  // namespace

LayoutConfig sized_layout(const RunContext& context, LayoutConfig layout, const Task& task,
                          const Checkpoint& checkpoint, int num_ranks) {
  if (checkpoint.section().none) {  // every rank by itself, whatever GPUs there are
    LayoutConfig alone;
    alone.gpus_per_group = 1;
    alone.cpu_only = true;
    alone.place_in_job = layout.place_in_job;
    alone.most_threads = layout.most_threads;
    return alone;
  }
  if (layout.cpu_only || !layout.gpus_usable || layout.gpus_per_group != 0) return layout;
  const std::uint64_t free = least_free_bytes(context.world, layout, context.weights);
  if (free == 0) return layout;
  // The least that a group must hold: what a device likes beyond the task's own limits may be halved again.
  const PassShape pass = task.pass_shape(kGpuPassLimits);
  std::vector<GroupModel> models = {counted(checkpoint, pass, pages_of_one_text(pass), "")};
  std::deque<Checkpoint> others;
  for (const SecondModel& second : task.second_models(kGpuPassLimits)) {
    bool stands_in = false;
    ModelSection section = model_by_now(second.section, context, stands_in);
    section.dtype = second.section.dtype;
    const Checkpoint& other = others.emplace_back(section);
    if (second.may_stand_on_cpus && !missing_on_gpus(other.config()).empty()) continue;
    models.push_back(counted(other, second.pass, second.pages, second.name));
  }
  for (const int size : group_sizes(models, num_ranks)) {
    if (num_ranks % size != 0) continue;
    layout.gpus_per_group = size;  // the largest where none suffices: check_device_memory() then says what is missing
    if (fits(group_memory(models, size), free)) break;
  }
  log_info("groups of {} GPU{}, of which {} are free each", layout.gpus_per_group,
           layout.gpus_per_group == 1 ? "" : "s", format_bytes(free));
  return layout;
}

std::optional<gpu::Queue> queue_of(const GpuGroup& group) {
  if (group.on_gpu()) {
    open_gpu(group.device_index());
    return gpu::Queue{group.device_index(), nullptr};
  }
  return gpu_code_on_host() ? std::optional<gpu::Queue>(gpu::Queue{}) : std::nullopt;
}

std::optional<gpu::Queue> queue_of(const std::vector<DeviceRow>& devices) {
  if (on_gpus(devices)) return gpu::Queue{0, nullptr};
  return gpu_code_on_host() ? std::optional<gpu::Queue>(gpu::Queue{}) : std::nullopt;
}

void check_device_memory(const GpuGroup& group, const OpenModel& model, const MemoryParts& parts) {
  if (!group.on_gpu()) return;
  GpuMemory memory = gpu_memory(group.device_index());
  memory.free_bytes += model.kept_gpu_bytes();
  refuse_too_much(group.device_index(), memory, group.tp_size(), parts);
}

int shards_on_host(const Communicator& world, const GpuGroup& group) {
  const Communicator host = world.split_by_host();
  return static_cast<int>(world.max(host.sum(static_cast<std::uint64_t>(group.shards_per_rank()))));
}

int shards_on_host(const std::vector<DeviceRow>& devices) {
  std::map<std::string, int> shards;
  int most = 1;
  for (const DeviceRow& row : devices) most = std::max(most, ++shards[row.host]);
  return most;
}

void check_host_memory(const Communicator& world, const OpenModel& model, const MemoryParts& parts) {
  if (model.gpu && !model.gpu->on_host()) return;
  HostMemory memory = host_memory();
  // Weights that an earlier task left are taken over or freed.
  const std::uint64_t kept =
      world.split_by_host().sum(model.kept.store == nullptr ? 0 : model.kept.store->host_bytes());
  if (memory.free_bytes != 0) memory.free_bytes += kept;
  for (const std::string& message :
       world.all_gather(host_memory_fault(host_name(), memory, model.shards_on_host, parts))) {
    if (!message.empty()) fail(ExitCode::kConfig, "{}", message);
  }
}

void check_device_memory(const PlanReport& report) {
  const std::vector<GpuDevice> gpus = discover_gpus();
  if (!on_gpus(report.devices) || gpus.empty()) return;
  refuse_too_much(gpus.front().index, {gpus.front().total_bytes, gpus.front().free_bytes}, report.tp_size,
                  report.device_parts);
}

}  // namespace magister
