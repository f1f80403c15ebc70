// Tensors on a queue's device: where that is, small ones on their way there without waiting for what is queued, and the way back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "magister/device/launch.h"

namespace magister {

inline at::Device device_of(const gpu::Queue& queue) {
  return queue.on_host() ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(queue.device));
}

// A copy from ordinary memory would wait until the device has done everything before it; from pinned memory it takes its place in the
// stream. ATen keeps the pinned copy until it is done. On the CPU the tensor itself.
inline at::Tensor upload(const at::Tensor& tensor, at::Device device) {
  return device.is_cpu() ? tensor : tensor.pin_memory().to(device, /*non_blocking=*/true);
}

// A copy in pinned memory, which a device writes without a stop in between, once all that is queued before it is done. On the CPU the tensor itself.
inline at::Tensor download(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  return host.copy_(tensor);
}

}  // namespace magister
