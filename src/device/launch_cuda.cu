// Functions of launch.h that call the CUDA runtime, except the kernels' launch_cuda().
#include <cuda_runtime_api.h>

#include <vector>

#include "magister/device/launch_cuda.cuh"

namespace magister::gpu {
namespace {

// Filled by static initialisers.
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
    // A kernel that cannot be loaded reports its error when it is started.
    if (cudaFuncGetAttributes(&attributes, function) != cudaSuccess) cudaGetLastError();
  }
}

const char* cuda_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace magister::gpu
