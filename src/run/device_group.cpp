// The group's size from the model's bytes and the memory found.
#include "magister/run/device_group.h"

#include <algorithm>
#include <cstdlib>
#include <map>
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
#include "magister/run/memory_plan.h"
#include "magister/run/open_model.h"

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

// The least free memory of a GPU that a rank would use; 0 when a rank has none.
std::uint64_t least_free_bytes(const Communicator& world, const LayoutConfig& layout) {
  std::uint64_t free = ~std::uint64_t{0};
  bool found = false;
  for (const GpuDevice& gpu : discover_gpus()) {
    const bool wanted = layout.devices.empty() ||
                        std::find(layout.devices.begin(), layout.devices.end(), gpu.index) != layout.devices.end();
    if (!wanted) continue;
    free = std::min(free, gpu.free_bytes);
    found = true;
  }
  return world.min(found ? free : 0);
}

}  // namespace

LayoutConfig sized_layout(const Communicator& world, LayoutConfig layout, const Checkpoint& checkpoint,
                          const PassShape& pass, int num_ranks) {
  if (checkpoint.section().none) {  // every rank by itself, whatever GPUs there are
    LayoutConfig alone;
    alone.gpus_per_group = 1;
    alone.cpu_only = true;
    return alone;
  }
  if (layout.cpu_only || !layout.gpus_usable || layout.gpus_per_group != 0) return layout;
  const std::uint64_t free = least_free_bytes(world, layout);
  if (free == 0) return layout;
  const ModelDescription& description = checkpoint.description();
  check_gpu_computes(description.config);
  const QuantScheme scheme = quant_scheme_of(checkpoint.section());
  const at::ScalarType dtype = resolve_gpu_dtype(checkpoint.section().dtype);
  for (const int size : working_tp_sizes(description.config, num_ranks)) {
    if (num_ranks % size != 0) continue;
    layout.gpus_per_group = size;  // the largest where none suffices: check_device_memory() then says what is missing
    const auto weights = [&](int shard) {
      return weight_bytes(description, checkpoint.file(), dtype, shard, size, scheme);
    };
    const GpuDemand demand{dtype, scheme.on()};
    if (fits(device_memory(description.config, weights, size, pass, pages_of_one_text(pass), demand), free)) break;
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
