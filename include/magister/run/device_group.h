// Where a task computes: the GPU group of this rank, of the smallest size that holds the model where the experiment says auto.
#pragma once

#include <optional>

#include "magister/device/launch.h"
#include "magister/parallel/layout.h"
#include "magister/run/checkpoint.h"
#include "magister/run/experiment_config.h"
#include "magister/run/memory_plan.h"
#include "magister/run/run_context.h"

namespace magister {

struct OpenModel;
class Task;

// layout.gpus_per_group: auto on GPUs is the smallest group whose devices hold weights and work memory of the task's model and of those beside it
// (collectives cost more than copies of the model save); elsewhere as `layout` says. For so many ranks like these. checkpoint: of the
// task's model. Collective over the context's world.
LayoutConfig sized_layout(const RunContext& context, LayoutConfig layout, const Task& task,
                          const Checkpoint& checkpoint, int num_ranks);

// Where this rank's kernels go; nothing where the model runs on the CPU. MAGISTER_GPU_CODE_ON_HOST=1 in the environment, a test-only override
// of the tests, makes CPU ranks run the GPU's code on the host. Opens the GPU for this thread. Local.
std::optional<gpu::Queue> queue_of(const GpuGroup& group);
// The same before there is a group, for `plan`: whether its devices are GPUs.
std::optional<gpu::Queue> queue_of(const std::vector<DeviceRow>& devices);

// Shards that share a host's memory, of the host that has most. Collective over world.
int shards_on_host(const Communicator& world, const GpuGroup& group);
// The same before there is a group, for `plan`.
int shards_on_host(const std::vector<DeviceRow>& devices);

// Throws Error(kConfig), the same on every rank, when a host's shards of a model on CPUs together do not fit into what is free of its memory:
// the system would end the job in its middle, without a word. Collective over world.
void check_host_memory(const Communicator& world, const OpenModel& model, const MemoryParts& parts);

// Throws Error(kConfig) with every part when the model, with what stands beside it, does not fit into what is free on this rank's GPU or kept
// there for it. Local.
void check_device_memory(const GpuGroup& group, const OpenModel& model, const MemoryParts& parts);
// The same for `plan`, on the first GPU that this process sees.
void check_device_memory(const PlanReport& report);

}  // namespace magister
