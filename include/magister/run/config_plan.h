// `plan --config-only`: a task's devices from its models' config.json alone.
#pragma once

#include <cstdint>
#include <string>

#include "magister/parallel/layout.h"

namespace magister {

class Task;

// The text for people. The models' paths: folders with config.json, or config.json files. dtype auto counts as bf16 here, what checkpoints of
// that size are stored in. Counted as a run counts it on GPUs, or on CPUs where layout.devices says so or the model is not computed on GPUs, with
// the models that stand beside the task's own. device_bytes: memory of one device, 0: unknown, of which a GPU gives kUsableGpuShare. Throws
// Error(kConfig) with the smallest group that fits when the requested one does not, or when none does. num_ranks: of a cluster that is planned
// (parallel/gpu_cards.h), whose groups are listed then; 0: none is.
std::string plan_from_config(const Communicator& world, Task& task, const LayoutConfig& layout,
                             std::uint64_t device_bytes, int num_ranks);

}  // namespace magister
