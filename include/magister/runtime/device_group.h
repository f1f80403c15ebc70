// Where a task computes: the GPU group of this rank, of the smallest size that holds the model where the experiment says auto.
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

// What a group of a task must hold at least: the task's own model with its passes, and the models beside it, whose sections can be opened.
struct GroupDemand {
  const Checkpoint& checkpoint;
  PassShape pass{};
  std::vector<SecondModel> others{};
};

// layout.gpus_per_group: auto on GPUs is the smallest group whose devices hold weights and work memory of the task's model and of those beside it
// (collectives cost more than copies of the model save); elsewhere as `layout` says. For so many ranks like these. weights: what this process
// keeps of earlier tasks counts as free; null: nothing. Of several sizes it says what each needs. Collective over world.
LayoutConfig sized_layout(const Communicator& world, LayoutConfig layout, const GroupDemand& demand, int num_ranks,
                          const WeightStore* weights);

// Where the kernels of the rank's first device go, for which this thread opens it; nothing where the model runs on the CPU. devices: the
// layout's table. MAGISTER_GPU_CODE_ON_HOST=1 in the environment, a test-only override, makes CPU ranks run the GPU's code on the host, and
// MAGISTER_GPUS_ON_HOST (gpus_on_host()) gives them GPUs to lay out, too. Local.
std::optional<gpu::Queue> queue_of(const std::vector<DeviceRow>& devices, int world_rank);
// CUDA indices of a rank's devices; empty on CPUs and where the host plays the GPUs.
std::vector<int> gpus_of(const std::vector<DeviceRow>& devices, int world_rank);
// The smallest free memory of these GPUs. Weights that earlier tasks left in the store (null: none) count as free: they are reused or freed
// before another model is loaded. Local.
std::uint64_t least_free_gpu_bytes(const std::vector<int>& gpus, const WeightStore* store);

// Shards that share a host's memory, of the host that has most. Collective over world.
int shards_on_host(const Communicator& world, const GpuGroup& group);
// The same before there is a group, for `plan`.
int shards_on_host(const std::vector<DeviceRow>& devices);

// Throws Error(kConfig), the same on every rank, when the shards on a host do not fit into its free memory; otherwise the kernel's OOM killer
// would end the job. parts: of a shard whose model is on CPUs. beside: what each shard needs of its host even where the model is on a GPU.
// together: for groups of several sizes, what the shards of the fullest host need in all; 0: groups have one size. Collective over world.
void check_host_memory(const Communicator& world, const OpenModel& model, const MemoryParts& parts,
                       const MemoryParts& beside = {}, std::uint64_t together = 0);

// Throws Error(kConfig) with every part when the model, with what stands beside it, does not fit into what is free on the GPU of this rank's
// shard or kept there for it. Local.
void check_device_memory(const GpuGroup& group, int shard, const OpenModel& model, const MemoryParts& parts);
// The same for `plan`, on every GPU of the layout, as each was found; the same on every rank. parts_of: by the size of a device's group.
void check_device_memory(const std::vector<DeviceRow>& devices,
                         const std::function<const MemoryParts&(int group_size)>& parts_of);

}  // namespace magister
