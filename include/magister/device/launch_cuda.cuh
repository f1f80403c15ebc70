// Defines launch_cuda() for the kernels of a .cu file: write MAGISTER_INSTANTIATE(KernelType) for each.
#pragma once

#include <cuda_runtime_api.h>

#include "magister/device/device_code.h"

namespace magister::gpu {

// Number of blocks of kMaxThreads that must fit on a multiprocessor: kMinBlocks of the kernel, or 1.
template <typename Kernel>
constexpr int min_blocks() {
  if constexpr (requires { Kernel::kMinBlocks; }) return Kernel::kMinBlocks;
  return 1;
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kMaxThreads, min_blocks<Kernel>()) run_kernel(const Kernel kernel) {
  CudaThread thread;
  run_thread(kernel, thread);
}

// Registers a kernel for load_kernels() of launch.h. Always returns true.
bool know_kernel(const void* function);

template <typename Kernel>
int launch_cuda(const Kernel& kernel, const LaunchShape& shape, void* stream, bool early) {
  constexpr std::size_t kWithoutAsking = 48 << 10;  // more dynamic shared memory must be requested
  if (shape.shared_bytes > kWithoutAsking) {
    const cudaError_t code = cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(shape.shared_bytes));
    if (code != cudaSuccess) return static_cast<int>(code);
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks_x, shape.blocks_y, shape.blocks_z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  // Used instead of <<<>>> and cudaGetLastError(), which would also return the error of an earlier call.
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  return static_cast<int>(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&run_kernel<Kernel>), arguments));
}

}  // namespace magister::gpu

#define MAGISTER_JOIN_2(A, B) A##B
#define MAGISTER_JOIN(A, B) MAGISTER_JOIN_2(A, B)
#define MAGISTER_INSTANTIATE(...)                                                                                    \
  template int magister::gpu::launch_cuda<__VA_ARGS__>(const __VA_ARGS__&, const magister::gpu::LaunchShape&, void*, \
                                                       bool);                                                        \
  [[maybe_unused]] static const bool MAGISTER_JOIN(magister_knows_kernel_, __COUNTER__) =                            \
      magister::gpu::know_kernel(reinterpret_cast<const void*>(&magister::gpu::run_kernel<__VA_ARGS__>))
