// The section `plan` of an experiment.
#pragma once

#include "magister/core/config.h"
#include "magister/experiment/config.h"

namespace magister {

// layout: that of the experiment, which must be for GPUs where some are named.
PlanSection read_plan(ConfigNode& root, const LayoutConfig& layout);

}  // namespace magister
