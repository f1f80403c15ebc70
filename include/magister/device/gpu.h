// A rank's GPU: opening it, its memory, and waiting for queued work. Work goes to the device's legacy default stream,
// in order; ATen, NCCL and our kernels share it. In a build without CUDA, functions that need a GPU throw
// Error(kConfig).
#pragma once

#include <cstdint>
#include <utility>

namespace magister {

// Loads libtorch's GPU libraries (libtorch_cuda.so in addition to libtorch_cpu.so, 1.5 GB, once per process, 1 to 3 s).
// Call it before any ATen call that checks for CUDA, because ATen remembers the answer for the process. From then on
// cuBLAS accumulates bf16 products in f32 only, in a fixed order. Throws Error(kConfig) if the library does not load.
void load_gpu_libraries();
// The oldest compute capability that scripts/cmake/Modules.cmake compiles for; 80 means 8.0.
inline constexpr int kLeastGpuCapability = 80;
// Calls load_gpu_libraries() and makes the device the current one of this thread, for CUDA and ATen. Every thread that
// computes on the device calls it. Throws Error(kConfig) if there is no such device, or if it is older than the kernels
// (compute capability 8.0).
void open_gpu(int device_index);
// 90 means 9.0.
int gpu_compute_capability(int device_index);

struct GpuMemory {
  std::uint64_t total_bytes = 0, free_bytes = 0;
};
// Memory by the driver's current report. Memory that ATen's allocator of this process caches counts as free, because
// the allocator reuses it. Makes the device the thread's current one.
GpuMemory gpu_memory(int device_index);
// Bytes that the allocator caches; 0 if the GPU libraries are not loaded or the allocator has not been used.
std::uint64_t idle_gpu_bytes(int device_index) noexcept;
// Returns the cached memory to the driver, for NCCL, cuBLAS or another process. Called after a model was destroyed.
void release_idle_gpu_memory() noexcept;

// Memory that ATen's allocator has given out on a device (bytes) and holds from the driver (reserved): current values
// and peaks since the last reset.
struct GpuAllocated {
  std::uint64_t bytes = 0, peak_bytes = 0, reserved_bytes = 0, reserved_peak_bytes = 0;
};
GpuAllocated gpu_allocated(int device_index);
void reset_gpu_peak(int device_index);

// A mark in the default stream of this thread's device. It is done when all work that was queued before it is done.
// Move-only.
class GpuEvent {
 public:
  GpuEvent() = default;  // done from the start
  static GpuEvent record();
  ~GpuEvent();
  GpuEvent(GpuEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  // Throws Error(kInternal) with CUDA's error text if the device has failed.
  bool done() const;
  void wait() const;

 private:
  void* event_ = nullptr;  // cudaEvent_t
};

}  // namespace magister
