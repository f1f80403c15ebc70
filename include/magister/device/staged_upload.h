// StagedUpload: large tensors on their way to a device. The host's threads write pinned blocks of 8 MiB, which go to the device while they write
// the next ones: what a thread reads from a file passes through memory that is mapped once, and no tensor is made on the host as a whole.
// 16 GB of an 8B model took 1.4 s on one H100 with 16 cores, from the page cache. A copy from ordinary memory took 7.5 GB/s on an H200's host, from
// pinned memory 55, and into freshly mapped memory 1.4.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "magister/device/gpu.h"

namespace magister {

class StagedUpload {
 public:
  static constexpr std::int64_t kBlockBytes = 8 << 20;  // a power of two: ATen's pinned memory comes in such

  // device: a CUDA device, or the CPU, whose blocks are ordinary memory. threads: how many send at once; two blocks each and two more, 26 at most.
  // block_bytes: for tests.
  StagedUpload(at::Device device, int threads, std::int64_t block_bytes = kBlockBytes);

  at::Device device() const { return device_; }
  std::int64_t block_bytes() const { return block_bytes_; }

  // fill(block) writes a contiguous CPU tensor of there's sizes and dtype, whose numbers go into `there`: contiguous, on the device. Returns when the
  // copy has its place in the default stream, or throws what fill throws. What is larger than a block goes through memory of its own, and waits.
  // Thread-safe.
  void send(const at::Tensor& there, const std::function<void(const at::Tensor& block)>& fill);

 private:
  struct Block {
    at::Tensor bytes;
    GpuEvent sent;
  };
  Block take();
  void give_back(Block block);

  at::Device device_;
  std::int64_t block_bytes_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::deque<Block> blocks_;  // that nobody writes; what was sent first is first
};

}  // namespace magister
