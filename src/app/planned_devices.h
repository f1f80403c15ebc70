// What plan.devices and plan.device_memory say in place of the machine that `plan` runs on.
#pragma once

#include "app/commands.h"
#include "magister/app/experiment.h"

namespace magister {

// The ranks that are planned: --ranks, or a rank for each GPU of plan.devices, or of a process that plans alone with plan.device_memory one group's;
// else those of this start. From now on layouts are those of the planned GPUs, where some are named. config_only: no rank is started for a size alone.
int plan_with_devices(const Invocation& call, const ExperimentConfig& config, bool config_only);

}  // namespace magister
