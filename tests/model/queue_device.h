// The ATen device of a queue of kernels.
#pragma once

#include <ATen/ATen.h>

#include "magister/model/gpu/launch.h"

namespace magister::gpu {

inline at::Device device_of(const Queue& queue) {
  return queue.on_host() ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(queue.device));
}

}  // namespace magister::gpu
