// What launch.h needs of the CUDA runtime besides the kernels themselves.
#include <cuda_runtime_api.h>

#include <vector>

#include "magister/device/launch_cuda.cuh"

namespace magister::gpu {
namespace {

// Filled while the program starts.
std::vector<const void*>& known_kernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

}  // namespace

bool know_kernel(const void* function) {
  known_kernels().push_back(function);
  return true;
}

void load_kernels() {
  for (const void* const function : known_kernels()) {
    cudaFuncAttributes attributes{};
    // One that cannot be loaded says so when it is started.
    if (cudaFuncGetAttributes(&attributes, function) != cudaSuccess) cudaGetLastError();
  }
}

const char* cuda_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace magister::gpu
