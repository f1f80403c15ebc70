// DeviceTensors: what a TensorFile also is if its numbers are on a device. Its read() then takes tensors of that
// device, too, and queues the copy there. Nothing passes through the host.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

class DeviceTensors {
 public:
  virtual ~DeviceTensors() = default;
  virtual at::Device device() const = 0;
};

// Returns whether the numbers of the file are on this device, so that read() may write to it.
inline bool are_on(const TensorFile& file, at::Device device) {
  const auto* const tensors = dynamic_cast<const DeviceTensors*>(&file);
  return tensors != nullptr && tensors->device() == device;
}

}  // namespace magister
