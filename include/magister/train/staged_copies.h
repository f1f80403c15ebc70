// Copies of large tensors between the host's ordinary memory and a GPU, through two pinned buffers: while the device moves one, threads copy the other. Without
// them the driver moves ordinary memory by a thread of its own: 1.4 GB/s into fresh memory and 7 to 15 GB/s otherwise, where pinned memory gives 55 (one
// H200). Host memory that is needed in every step is kept. On the host, for tests, the same copies through ordinary buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "magister/device/gpu.h"
#include "magister/parallel/thread_pool.h"

namespace magister {

class StagedCopies {
 public:
  // device: the GPU, or the CPU. pool is kept by reference, and copies from a tile of it are made where it has one thread alone. One thread at a time.
  // Takes 32 MiB of pinned memory with the first copy. Local.
  StagedCopies(at::Device device, ThreadPool& pool) : device_(device), pool_(pool) {}

  at::Device device() const { return device_; }

  // Tensors are f32, contiguous, and hold as many numbers. to_host() returns when they are there, to_device() when `from` may change and with the
  // copy in the stream. Throws as ATen where there is no memory for the buffers. Local.
  void to_host(const at::Tensor& from, const at::Tensor& to);
  void to_device(const at::Tensor& from, const at::Tensor& to);

  // f32 [size] on the host, not set: memory that was taken before where nobody holds it any more. Local.
  at::Tensor take(std::int64_t size);
  // A copy on the host, in memory that take() gives. Local.
  at::Tensor copy_of(const at::Tensor& from);

 private:
  static constexpr std::int64_t kNumbers = 4 << 20;  // of a buffer: 16 MiB, of which ATen's allocator takes no more
  struct Buffer {
    at::Tensor numbers;
    GpuEvent moved;  // what the device does with it
  };
  Buffer& buffer(std::int64_t piece);
  void mark(Buffer& buffer) const;
  void copy(const float* from, float* to, std::int64_t count);

  at::Device device_;
  ThreadPool& pool_;
  std::array<Buffer, 2> buffers_;
  std::vector<at::Tensor> kept_;
};

}  // namespace magister
