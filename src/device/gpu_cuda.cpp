// A rank's GPU by the CUDA runtime. libtorch's GPU libraries are loaded by dlopen; linking them would cost every run on
// a CPU seconds and hundreds of megabytes.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/device/check_cuda.cuh"
#include "magister/device/gpu.h"

namespace magister {
namespace {

// nullptr before libtorch's GPU libraries are loaded, or before the allocator is used.
c10::DeviceAllocator* used_allocator() {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::CUDA));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

}  // namespace

void load_gpu_libraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // cuBLAS requires this setting for reproducible bits
    void* handle = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
    const char* problem = handle == nullptr ? dlerror() : nullptr;
    MAGISTER_CHECK(handle != nullptr, ExitCode::kConfig,
                   "libtorch's GPU library does not load on {}: {} (this run is to use its GPUs); install the torch "
                   "wheel with CUDA, as scripts/setup.sh does, or set layout.devices: cpu",
                   host_name(), printable(problem == nullptr ? "" : problem, 500));
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
  });
}

void open_gpu(int device_index) {
  load_gpu_libraries();
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  MAGISTER_CHECK(
      code == cudaSuccess && device_index >= 0 && device_index < count, ExitCode::kConfig,
      "cuda:{} cannot be used on {}: {} ({} GPUs are visible); check `magister doctor`, or set layout.devices: cpu",
      device_index, host_name(), code == cudaSuccess ? "there is no such GPU" : cudaGetErrorString(code), count);
  const int capability = gpu_compute_capability(device_index);
  MAGISTER_CHECK(capability >= kLeastGpuCapability, ExitCode::kConfig,
                 "cuda:{} on {} has compute capability {}.{} (the kernels are made for {}.{} "
                 "and newer); use another GPU or set layout.devices: cpu",
                 device_index, host_name(), capability / 10, capability % 10, kLeastGpuCapability / 10,
                 kLeastGpuCapability % 10);
  MAGISTER_CHECK_CUDA(cudaSetDevice(device_index));
}

int gpu_compute_capability(int device_index) {
  int major = 0, minor = 0;
  MAGISTER_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index));
  MAGISTER_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_index));
  return 10 * major + minor;
}

GpuMemory gpu_memory(int device_index) {
  MAGISTER_CHECK_CUDA(cudaSetDevice(device_index));
  std::size_t free = 0, total = 0;
  MAGISTER_CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return {total, free + idle_gpu_bytes(device_index)};
}

std::uint64_t idle_gpu_bytes(int device_index) noexcept {
  try {
    if (used_allocator() == nullptr) return 0;
    const GpuAllocated allocated = gpu_allocated(device_index);
    return allocated.reserved_bytes - std::min(allocated.reserved_bytes, allocated.bytes);
  } catch (const std::exception&) {  // the process has not used this device
    return 0;
  }
}

void release_idle_gpu_memory() noexcept {
  try {
    if (c10::DeviceAllocator* const allocator = used_allocator()) allocator->emptyCache();
  } catch (const std::exception& error) {
    log_warning("unused GPU memory could not be released (a later task may lack it): {}", printable(error.what(), 300));
  }
}

GpuAllocated gpu_allocated(int device_index) {
  const c10::CachingDeviceAllocator::DeviceStats stats =
      c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device_index));
  const auto& allocated = stats.allocated_bytes[0];  // the sum over all pools
  return {static_cast<std::uint64_t>(allocated.current), static_cast<std::uint64_t>(allocated.peak),
          static_cast<std::uint64_t>(stats.reserved_bytes[0].current),
          static_cast<std::uint64_t>(stats.reserved_bytes[0].peak)};
}

void reset_gpu_peak(int device_index) {
  c10::getDeviceAllocator(c10::DeviceType::CUDA)->resetPeakStats(static_cast<c10::DeviceIndex>(device_index));
}

GpuEvent GpuEvent::record() {
  GpuEvent event;
  cudaEvent_t made = nullptr;
  MAGISTER_CHECK_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  event.event_ = made;
  MAGISTER_CHECK_CUDA(cudaEventRecord(made, nullptr));
  return event;
}

GpuEvent::~GpuEvent() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

bool GpuEvent::done() const {
  if (event_ == nullptr) return true;
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // otherwise ATen finds it after its next kernel and takes it for a failure
    return false;
  }
  check_cuda(state, "work on the GPU");
  return true;
}

void GpuEvent::wait() const {
  while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace magister
