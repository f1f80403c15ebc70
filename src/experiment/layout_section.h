// The section `layout` of an experiment.
#pragma once

#include "magister/core/config.h"
#include "magister/parallel/layout.h"

namespace magister {

LayoutConfig read_layout(ConfigNode& root);

}  // namespace magister
