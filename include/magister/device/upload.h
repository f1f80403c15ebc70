// The device of a queue; copies of small tensors to it without waiting for queued work, and copies back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "magister/device/launch.h"

namespace magister {

inline at::Device device_of(const gpu::Queue& queue) {
  return queue.on_host() ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(queue.device));
}

// Copies a tensor to the device in stream order. A copy from pageable memory would wait until all earlier work of the
// device is done; a copy from pinned memory does not. ATen keeps the pinned memory until the copy is done. On the CPU
// it returns the tensor itself.
inline at::Tensor upload(const at::Tensor& tensor, at::Device device) {
  return device.is_cpu() ? tensor : tensor.pin_memory().to(device, /*non_blocking=*/true);
}

// Copies a tensor into pinned memory, which takes one transfer, after all work that was queued before it; waits for it.
// On the CPU it returns the tensor itself.
inline at::Tensor download(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  return host.copy_(tensor);
}

}  // namespace magister
