// What launch.h needs of the CUDA runtime besides the kernels themselves.
#include <cuda_runtime_api.h>

#include "magister/device/device_code.h"

namespace magister::gpu {
const char* cuda_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
}  // namespace magister::gpu
