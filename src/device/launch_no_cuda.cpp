// Kernels in a build without CUDA run on the host only.
#include "magister/device/launch.h"

namespace magister::gpu {
void load_kernels() {}
const char* cuda_error_text(int) { return "this build has no CUDA"; }
}  // namespace magister::gpu
