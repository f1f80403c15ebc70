// A rank's GPU: opening it, its memory, and waiting for what is queued there. Work goes to the device's legacy default stream, in
// order; ATen, NCCL and our kernels share it. In a build without CUDA everything here throws Error(kConfig).
#pragma once

#include <cstdint>
#include <utility>

namespace magister {

// Loads libtorch's GPU libraries (libtorch_cuda.so beside libtorch_cpu.so, 1.5 GB, once a process, 1 to 3 s). Before any ATen call that
// asks for CUDA: its answer is remembered for the process. From then on cuBLAS sums bf16 products in f32 only, and in one order.
// Throws Error(kConfig) naming what is missing.
void load_gpu_libraries();
// The oldest compute capability that scripts/cmake/Modules.cmake compiles for: 80 for 8.0.
inline constexpr int kLeastGpuCapability = 80;
// The same, and makes the device this thread's own, for CUDA and ATen. Every thread that computes there calls it. Throws Error(kConfig)
// when there is no such device, or it is older than the kernels (compute capability 8.0).
void open_gpu(int device_index);
// 90 for 9.0.
int gpu_compute_capability(int device_index);

struct GpuMemory {
  std::uint64_t total_bytes = 0, free_bytes = 0;
};
// As the driver says now. What ATen's allocator of this process keeps in reserve counts as free: it gives it out again.
GpuMemory gpu_memory(int device_index);
// That reserve: 0 where the GPU libraries are not loaded or nothing was ever asked of the allocator.
std::uint64_t idle_gpu_bytes(int device_index) noexcept;
// Gives the reserve back to the driver, for what asks there: NCCL, cuBLAS, another process. When a model has gone.
void release_idle_gpu_memory() noexcept;

// What ATen's allocator has given out on a device, and what it keeps from the driver: now, and at most since the last reset.
struct GpuAllocated {
  std::uint64_t bytes = 0, peak_bytes = 0, reserved_bytes = 0, reserved_peak_bytes = 0;
};
GpuAllocated gpu_allocated(int device_index);
void reset_gpu_peak(int device_index);

// A mark in the stream of this thread's device: done when everything queued before it is. Move-only.
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
  // Throws Error(kInternal) with CUDA's words when the device has failed.
  bool done() const;
  void wait() const;

 private:
  void* event_ = nullptr;  // cudaEvent_t
};

}  // namespace magister
