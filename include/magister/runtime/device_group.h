// The GPU group of this rank on which a task computes; with layout.gpus_per_group: auto the smallest group that holds
// the model.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "magister/device/launch.h"
#include "magister/experiment/config.h"
#include "magister/parallel/layout.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

class WeightStore;
struct OpenModel;

// The minimum that a task's group must hold: the task's own model with its passes, and further models whose sections
// can be opened.
struct GroupDemand {
  const Checkpoint& checkpoint;
  PassShape pass{};
  std::vector<SecondModel> others{};
};

// The layout of a task. For layout.gpus_per_group: auto on GPUs it has the smallest group whose devices hold weights
// and work memory of the task's model and of its further models (collectives cost more than copies of the model save).
// For a task without a model every rank works alone without a GPU. Otherwise it is `layout` unchanged. num_ranks: the
// layout is for this number of ranks like these. weights: memory that this process keeps from earlier tasks counts as
// free; null: none. For groups of several sizes it also has the bytes that each size needs. Collective over world.
LayoutConfig sized_layout(const Communicator& world, LayoutConfig layout, const GroupDemand& demand, int num_ranks,
                          const WeightStore* weights);

// The queue for kernels on the rank's first device, which this thread opens; no value if the model runs on the CPU.
// devices: the layout's table. Two environment variables are overrides for tests only: with MAGISTER_GPU_CODE_ON_HOST=1
// CPU ranks run the GPU's code on the host, and with MAGISTER_GPUS_ON_HOST (gpus_on_host()) they also have GPUs for the
// layout. Local.
std::optional<gpu::Queue> queue_of(const std::vector<DeviceRow>& devices, int world_rank);
// CUDA indices of a rank's devices; empty on CPUs and if the host emulates the GPUs.
std::vector<int> gpus_of(const std::vector<DeviceRow>& devices, int world_rank);
// The smallest free memory of these GPUs. Weights that earlier tasks left in the store (null: none) count as free: they
// are reused or freed before another model is loaded. Local.
std::uint64_t least_free_gpu_bytes(const std::vector<int>& gpus, const WeightStore* store);

// The number of shards that share a host's memory, on the host with the most of them. Collective over world.
int shards_on_host(const Communicator& world, const GpuGroup& group);
// The same for `plan`, before a group exists.
int shards_on_host(const std::vector<DeviceRow>& devices);

// Throws Error(kConfig), the same on every rank, if the shards on a host do not fit into its free memory; otherwise the
// kernel's OOM killer would end the job. parts: memory of a shard whose model is on CPUs. beside: host memory that each
// shard needs even if the model is on a GPU. together: for groups of several sizes, the total of the shards on the
// fullest host; 0: groups have one size. Collective over world.
void check_host_memory(const Communicator& world, const OpenModel& model, const MemoryParts& parts,
                       const MemoryParts& additional = {}, std::uint64_t together = 0);

// Throws Error(kConfig) with every part if the model, with everything else in `parts`, does not fit into the GPU of
// this rank's shard. Memory kept there for reuse counts as free. Local.
void check_device_memory(const GpuGroup& group, int shard, const OpenModel& model, const MemoryParts& parts);
// The same for `plan`, for every GPU of the layout with its recorded memory; the same on every rank. parts_of: parts by
// the size of a device's group.
void check_device_memory(const std::vector<DeviceRow>& devices,
                         const std::function<const MemoryParts&(int group_size)>& parts_of);

}  // namespace magister
