// The section `plan` of an experiment.
#pragma once

#include "magister/core/config.h"
#include "magister/experiment/config.h"

namespace magister {

// layout: the experiment's layout; it must be for GPUs if `plan` names GPUs.
PlanSection read_plan(ConfigNode& root, const LayoutConfig& layout);

}  // namespace magister
