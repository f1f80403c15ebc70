// CopyQueue: copies from a device to the host in a stream of their own, while the default stream computes. The default
// stream waits for them on the device before it writes what they still read. Source: CUDA C++ programming guide,
// "Asynchronous concurrent execution".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "magister/device/launch.h"

namespace magister {

class CopyQueue {
 public:
  struct Copy {
    at::Tensor from;  // f32, contiguous, on the device
    at::Tensor to;    // of the same size, in memory from take()
  };

  virtual ~CopyQueue() = default;  // waits for the copies

  // f32 [size] on the host, uninitialised, in pinned memory, which is freed with the tensor; undefined if the system
  // gives none. Takes about 0.3 s a GB on a GPU. Local.
  virtual at::Tensor take(std::int64_t size) = 0;
  // Queues copies that begin after the work that is queued on the default stream so far. The caller keeps the tensors
  // until the copies are done. Local.
  virtual void start(std::span<const Copy> copies) = 0;
  // What is queued on the default stream from now on begins when the copies so far are done. Returns at once. Local.
  virtual void hold_default() = 0;
  // Returns when the copies so far are done. Any thread, also while another calls hold_default(). Throws
  // Error(kInternal) if the device has failed. Local.
  virtual void wait() = 0;
};

// queue: the default stream of a device. Without a device a copy is made as late as a GPU may make it, in
// hold_default() or wait(): whoever forgets one of them has other numbers. Throws Error(kConfig) in a build without
// CUDA if there is a device. Local.
std::unique_ptr<CopyQueue> make_copy_queue(const gpu::Queue& queue);

}  // namespace magister
