// `plan --config-only`: plans a task's devices from the config.json of its models alone.
#pragma once

#include <cstdint>
#include <string>

#include "magister/parallel/layout.h"

namespace magister {

class Task;

// Returns the plan as text for people. A model's path is a folder with config.json, or a config.json file. dtype auto
// counts as bf16, because checkpoints of that size are stored in it. Memory is counted as a run counts it on GPUs, or
// on CPUs if layout.devices says so or if the model cannot be computed on GPUs; second models are included.
// device_bytes: memory of one device (0: unknown), of which a model may use kUsableGpuShare on a GPU. num_ranks: ranks
// of a planned cluster (parallel/gpu_cards.h), whose groups are then listed; 0: no cluster is planned. Throws
// Error(kInputOutput) for a missing model, and Error(kConfig) if the requested group does not fit, naming the smallest
// that does, or if no group fits.
std::string plan_from_config(const Communicator& world, Task& task, const LayoutConfig& layout,
                             std::uint64_t device_bytes, int num_ranks);

}  // namespace magister
