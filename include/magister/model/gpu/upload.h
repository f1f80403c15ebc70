// upload: small tensors to a device without waiting for what is queued there.
#pragma once

#include <ATen/core/Tensor.h>

namespace magister::gpu {

// A copy from ordinary memory would wait until the device has done everything before it; from pinned memory it takes its place in the
// stream. ATen keeps the pinned copy until it is done. On the CPU the tensor itself.
inline at::Tensor upload(const at::Tensor& tensor, at::Device device) {
  return device.is_cpu() ? tensor : tensor.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace magister::gpu
