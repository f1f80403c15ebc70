// Copies large tensors between ordinary host memory and a GPU through two pinned buffers each way: while the device
// moves one, threads copy the other, or compute with it. Otherwise the driver moves ordinary memory on one thread of
// its own: 1.4 GB/s into fresh memory and 7 to 15 GB/s elsewhere, while pinned memory gives 55 (one H200). Host memory
// that every step needs is kept. On the host, for tests, the same copies go through ordinary buffers.
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
  // thread. One thread at a time. The first copy in a direction takes 32 MiB of pinned memory. Local.
  StagedCopies(at::Device device, ThreadPool& pool) : device_(device), pool_(pool) {}

  at::Device device() const { return device_; }

  // Tensors are f32, contiguous, and of one size. to_host() returns when the numbers are on the host, to_device() when
  // `from` may change, with the copy in the stream. Throws as ATen does if there is no memory for the buffers. Local.
  void to_host(const at::Tensor& from, const at::Tensor& to);
  void to_device(const at::Tensor& from, const at::Tensor& to);
  // Calls visit(piece, begin) for the pieces of `from`, which are at most kPiece numbers in pinned memory and begin at
  // this number of it, in order, while the device moves the next piece. visit() may call to_device(). Local.
  static constexpr std::int64_t kPiece = 4 << 20;  // 16 MiB, which ATen's allocator does not round up
  void each_piece(const at::Tensor& from,
                  const std::function<void(const at::Tensor& piece, std::int64_t begin)>& visit);

  // f32 [size] on the host, uninitialised: memory that was taken before and is no longer in use, else new memory.
  // Local.
  at::Tensor take(std::int64_t size);
  // Returns a copy on the host, in memory from take(). Local.
  at::Tensor copy_of(const at::Tensor& from);

 private:
  struct Buffer {
    at::Tensor numbers;
    GpuEvent moved;  // the device's last use of it
  };
  struct Buffers {
    std::array<Buffer, 2> both;
    std::size_t next = 0;
  };
  // The next of the two, once the device does not use it any more.
  Buffer& take_buffer(Buffers& buffers) const;
  void mark(Buffer& buffer) const;
  void copy(const float* from, float* to, std::int64_t count);

  at::Device device_;
  ThreadPool& pool_;
  Buffers leaving_, arriving_;  // for the device, and from it
  std::vector<at::Tensor> kept_;
};

}  // namespace magister
