// GPU discovery in a build without the CUDA runtime: there are none.
#include "magister/parallel/layout.h"

namespace magister {

std::vector<GpuDevice> discover_gpus() { return {}; }
std::string cuda_runtime_version() { return "none"; }
std::string cuda_driver_version() { return "none"; }
std::string nccl_version() { return "none"; }

}  // namespace magister
