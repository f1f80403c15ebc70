// What the CUDA runtime shows of GPUs; discover_gpus() is the way in.
#pragma once

#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

std::vector<GpuDevice> discover_cuda_gpus();

}  // namespace magister
