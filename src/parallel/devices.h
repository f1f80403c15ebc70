// GPUs as the CUDA runtime reports them. Other modules call discover_gpus().
#pragma once

#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

std::vector<GpuDevice> discover_cuda_gpus();

}  // namespace magister
