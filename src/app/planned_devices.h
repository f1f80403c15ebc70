// The devices of plan.devices and plan.device_memory, which replace those of the machine on which `plan` runs.
#pragma once

#include "app/commands.h"
#include "magister/app/experiment.h"

namespace magister {

// Returns the number of ranks to plan for. --ranks decides first; then plan.devices, with a rank for each GPU or for
// devices_per_rank GPUs; then, for one process without GPUs and plan.device_memory, the size of a group; else the ranks
// of this start. If GPUs are planned, layouts use them from now on. config_only: plan.device_memory does not change the
// devices.
int plan_with_devices(const Invocation& call, const ExperimentConfig& config, bool config_only);

}  // namespace magister
