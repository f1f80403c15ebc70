// Chooses the group's size from the model's bytes and the free memory.
#include "magister/runtime/device_group.h"

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
#include "magister/model/gpu/gpu_mxfp4.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/parallel/host_memory.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/open_model.h"

namespace magister {
namespace {

bool gpu_code_on_host() {
  const char* wanted = std::getenv("MAGISTER_GPU_CODE_ON_HOST");
  const bool is_wanted = wanted != nullptr && std::string_view(wanted) == "1";
#if !defined(MAGISTER_HOST_KERNELS)
  MAGISTER_CHECK(!is_wanted, ExitCode::kConfig,
                 "MAGISTER_GPU_CODE_ON_HOST=1, but this program was built without tests (only they run the GPU's code "
                 "on the host); configure it with -DMAGISTER_TESTS=ON");
#endif
  return is_wanted;
}

GpuMemory memory_of(int device) {
  if (!gpus_on_host()) return gpu_memory(device);
  const GpuDevice gpu = discover_gpus().at(static_cast<std::size_t>(device));
  return {gpu.total_bytes, gpu.free_bytes};
}

bool fits(const MemoryParts& parts, std::uint64_t free) {
  return static_cast<double>(sum_of(parts)) <= kUsableGpuShare * static_cast<double>(free);
}

void refuse_too_much(const std::string& device, const GpuMemory& memory, int tp_size, const MemoryParts& parts) {
  if (fits(parts, memory.free_bytes)) return;
  const auto usable = static_cast<std::uint64_t>(kUsableGpuShare * static_cast<double>(memory.free_bytes));
  const auto [given, needed] = format_bytes_apart(usable, sum_of(parts));
  fail(ExitCode::kConfig,
       "{} has {} free of {}, of which a model may have {}, and a shard of {} needs {}: {} (loading would end without "
       "memory); use larger groups (layout.gpus_per_group), a quantization, or smaller passes, of a training "
       "train.gradient_checkpointing or a smaller train.micro_batch",
       device, format_bytes(memory.free_bytes), format_bytes(memory.total_bytes), given, tp_size, needed,
       describe(parts));
}

// Returns the fault, or "" if the shards fit. together: their sum if their sizes differ, else 0.
std::string host_memory_fault(const std::string& host, const HostMemory& memory, int shards, const MemoryParts& parts,
                              std::uint64_t together) {
  const std::uint64_t needed = together > 0 ? together : static_cast<std::uint64_t>(shards) * sum_of(parts);
  if (memory.free_bytes == 0 || needed <= memory.free_bytes) return "";  // 0: the system gives no number
  const auto [given, need] = format_bytes_apart(memory.free_bytes, needed);
  const std::string limit = memory.limited_by.empty() ? "" : fmt::format(", which {} limits", memory.limited_by);
  return fmt::format(
      "{} has {} of memory free of {}{}, and its {} need {}, {} {}: {} (the system would kill the job half-way); "
      "use fewer ranks on a host, groups of several shards, dtype: bf16, a quantization, or smaller passes",
      host, given, format_bytes(memory.total_bytes), limit,
      shards == 1 ? std::string("one shard") : fmt::format("{} shards", shards), need,
      together > 0 ? "one of them" : "each", format_bytes(sum_of(parts)), describe(parts));
}

// Bytes that the ranks keep on their GPUs for later tasks, by UUID. Collective over world.
std::map<std::string, std::uint64_t> kept_bytes(const Communicator& world, const WeightStore* weights) {
  std::string mine;
  for (const GpuDevice& gpu : discover_gpus()) {
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

// The checkpoint must outlive the returned model.
GroupModel counted(const Checkpoint& checkpoint, const PassShape& pass, std::uint64_t pages, const std::string& name) {
  check_gpu_computes(checkpoint.config());
  GroupModel model;
  model.name = name;
  model.config = checkpoint.config();
  model.dtype = model.config.encoder ? at::kFloat : resolve_gpu_dtype(checkpoint.section().dtype);
  model.scheme = quant_scheme_of(checkpoint.section());
  model.weight_bytes = [&checkpoint, dtype = model.dtype, scheme = model.scheme](int shard, int size) {
    return gpu_weight_bytes(checkpoint.description(), checkpoint.file(), dtype, shard, size, scheme);
  };
  model.pass = pass;
  model.pages = pages;
  model.gpu =
      GpuDemand{model.dtype, gpu_has_codes(checkpoint.description(), checkpoint.file(), model.dtype, model.scheme),
                checkpoint.section().fp8_cache, checkpoint.section().throughput_decoding};
  return model;
}

}  // namespace

LayoutConfig sized_layout(const Communicator& world, LayoutConfig layout, const GroupDemand& demand, int num_ranks,
                          const WeightStore* weights) {
  if (demand.checkpoint.section().none) {  // each rank works alone, whether or not there are GPUs
    LayoutConfig alone;
    alone.gpus_per_group = 1;
    alone.cpu_only = true;
    alone.place_in_job = layout.place_in_job;
    alone.most_threads = layout.most_threads;
    return alone;
  }
  if (layout.cpu_only || !layout.gpus_usable || layout.gpus_per_group != 0) return layout;
  LayoutConfig by_device = layout;
  by_device.gpus_per_group = 1;
  by_device.shares = GroupShares();
  const std::vector<DeviceRow> devices = plan_layout(world, num_ranks, by_device);
  if (!devices.front().gpu) return layout;
  std::map<std::string, std::uint64_t> kept = kept_bytes(world, weights);
  std::uint64_t free = ~std::uint64_t{0};
  for (const DeviceRow& row : devices) free = std::min(free, row.gpu->free_bytes + kept[row.gpu->uuid]);
  std::vector<GroupModel> models = {counted(demand.checkpoint, demand.pass, pages_of_one_text(demand.pass), "")};
  std::deque<Checkpoint> others;
  for (const SecondModel& second : demand.others) {
    const Checkpoint& other = others.emplace_back(second.section);
    if (second.may_stand_on_cpus && !missing_on_gpus(other.config()).empty()) continue;
    models.push_back(counted(other, second.pass, second.pages, second.name));
  }
  if (layout.shares.mixed()) {
    layout.kept_bytes = std::move(kept);
    for (const auto& part : layout.shares.parts()) {
      for (const GroupModel& model : models)
        partition_for(model.config, 0, model.shards_of(part.size));  // fails if the model cannot be divided
      layout.needed_bytes.push_back(
          static_cast<std::uint64_t>(static_cast<double>(sum_of(group_memory(models, part.size))) / kUsableGpuShare));
    }
    return layout;
  }
  for (const int size : group_sizes(models, static_cast<int>(devices.size()))) {
    if (!group_size_divides(devices, size)) continue;
    // If no size suffices, the largest stays, and check_device_memory() reports what is missing.
    layout.gpus_per_group = size;
    if (fits(group_memory(models, size), free)) break;
  }
  log_info("groups of {} GPU{}, of which {} are free each", layout.gpus_per_group,
           layout.gpus_per_group == 1 ? "" : "s", format_bytes(free));
  return layout;
}

namespace {

// Refuses planned cards as open_gpu() would refuse them in a run.
void check_planned_gpus(const std::vector<DeviceRow>& devices) {
  for (const DeviceRow& row : devices) {
    MAGISTER_CHECK(!row.gpu || planned_hosts().empty() || row.gpu->compute_capability >= kLeastGpuCapability,
                   ExitCode::kConfig,
                   "plan: a {} has compute capability {}.{} (the kernels are made for {}.{} and newer, so a run there "
                   "would be refused); plan with another card, or set layout.devices: cpu",
                   row.gpu->name, row.gpu->compute_capability / 10, row.gpu->compute_capability % 10,
                   kLeastGpuCapability / 10, kLeastGpuCapability % 10);
  }
}

}  // namespace

std::optional<gpu::Queue> queue_of(const std::vector<DeviceRow>& devices, int world_rank) {
  const bool on_gpus = !devices.empty() && devices.front().gpu;
  check_planned_gpus(devices);
  if (on_gpus && !gpus_on_host()) {
    const int first = gpus_of(devices, world_rank).front();
    open_gpu(first);
    return gpu::Queue{first, nullptr};
  }
  return on_gpus || gpu_code_on_host() ? std::optional<gpu::Queue>(gpu::Queue{}) : std::nullopt;
}

std::vector<int> gpus_of(const std::vector<DeviceRow>& devices, int world_rank) {
  std::vector<int> gpus;
  for (const DeviceRow& row : devices) {
    if (row.world_rank == world_rank && row.gpu && !gpus_on_host()) gpus.push_back(row.gpu->index);
  }
  // `plan` for fewer ranks than it runs on: a rank without a row uses the GPUs of rank 0.
  if (gpus.empty() && world_rank != 0) return gpus_of(devices, 0);
  return gpus;
}

std::uint64_t least_free_gpu_bytes(const std::vector<int>& gpus, const WeightStore* store) {
  std::uint64_t free = least_planned_bytes() > 0 ? least_planned_bytes() : ~std::uint64_t{0};
  for (const int gpu : gpus)
    free = std::min(free, memory_of(gpu).free_bytes + (store == nullptr ? 0 : store->gpu_bytes(gpu)));
  return free;
}

void check_device_memory(const GpuGroup& group, int shard, const OpenModel& model, const MemoryParts& parts) {
  if (!group.on_gpu()) return;
  const int device = group.devices()[static_cast<std::size_t>(shard)];
  GpuMemory memory = memory_of(device);
  if (model.kept.store != nullptr) memory.free_bytes += model.kept.store->gpu_bytes(device);
  refuse_too_much(fmt::format("cuda:{}", device), memory, group.tp_size(), parts);
}

int shards_on_host(const Communicator& world, const GpuGroup& group) {
  const Communicator host = world.split_by_host();
  return static_cast<int>(world.max(host.sum(static_cast<std::uint64_t>(group.shards_here()))));
}

int shards_on_host(const std::vector<DeviceRow>& devices) {
  std::map<std::string, int> shards;
  int most = 1;
  for (const DeviceRow& row : devices) most = std::max(most, ++shards[row.host]);
  return most;
}

void check_host_memory(const Communicator& world, const OpenModel& model, const MemoryParts& parts,
                       const MemoryParts& additional, std::uint64_t together) {
  if (model.planned_gpu) return;  // the memory of planned hosts is unknown
  MemoryParts all = additional;
  const bool on_host = !model.gpu || model.gpu->on_host();
  if (on_host) all.insert(all.begin(), parts.begin(), parts.end());
  if (all.empty()) return;
  if (together > 0)
    together = (on_host ? together : 0) + static_cast<std::uint64_t>(model.shards_on_host) * sum_of(additional);
  HostMemory memory = host_memory();
  // Weights that an earlier task left are reused or freed.
  const std::uint64_t kept =
      world.split_by_host().sum(model.kept.store == nullptr ? 0 : model.kept.store->host_bytes());
  if (memory.free_bytes != 0) memory.free_bytes += kept;
  for (const std::string& message :
       world.all_gather(host_memory_fault(host_name(), memory, model.shards_on_host, all, together))) {
    if (!message.empty()) fail(ExitCode::kConfig, "{}", message);
  }
}

void check_device_memory(const std::vector<DeviceRow>& devices,
                         const std::function<const MemoryParts&(int group_size)>& parts_of) {
  for (const DeviceRow& row : devices) {
    if (!row.gpu) continue;
    refuse_too_much(fmt::format("cuda:{} of rank {} on {}", row.gpu->index, row.world_rank, printable(row.host)),
                    {row.gpu->total_bytes, row.gpu->free_bytes}, row.group_size, parts_of(row.group_size));
  }
}

}  // namespace magister
