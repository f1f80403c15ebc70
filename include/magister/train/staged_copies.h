// Copies large tensors between ordinary host memory and a GPU through two pinned buffers: while the device moves one,
// threads copy the other. Otherwise the driver moves ordinary memory on one thread of its own: 1.4 GB/s into fresh
// memory and 7 to 15 GB/s elsewhere, while pinned memory gives 55 (one H200). Host memory that every step needs is
// kept. On the host, for tests, the same copies go through ordinary buffers.
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
  // device: the GPU, or the CPU. pool is kept by reference; a task of the pool may copy only if the pool has one
  // thread. One thread at a time. The first copy takes 32 MiB of pinned memory. Local.
  StagedCopies(at::Device device, ThreadPool& pool) : device_(device), pool_(pool) {}

  at::Device device() const { return device_; }

  // Tensors are f32, contiguous, and of one size. to_host() returns when the numbers are on the host, to_device() when
  // `from` may change, with the copy in the stream. Throws as ATen does if there is no memory for the buffers. Local.
  void to_host(const at::Tensor& from, const at::Tensor& to);
  void to_device(const at::Tensor& from, const at::Tensor& to);

  // f32 [size] on the host, uninitialised: memory that was taken before and is no longer in use, else new memory.
  // Local.
  at::Tensor take(std::int64_t size);
  // Returns a copy on the host, in memory from take(). Local.
  at::Tensor copy_of(const at::Tensor& from);

 private:
  static constexpr std::int64_t kNumbers = 4 << 20;  // per buffer: 16 MiB, which ATen's allocator does not round up
  struct Buffer {
    at::Tensor numbers;
    GpuEvent moved;  // the device's last use of it
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
