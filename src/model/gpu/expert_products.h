// The weights of all routed experts of a layer as one launch reads them: their places on the device, in a table.
// Legend: X experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

// The weights of one kind (gate and up, or down) of a layer's X experts, for one launch.
struct ExpertProducts {
  StoredWeight weight;  // without places
  at::Tensor places_X;  // bytes of an ExpertPlace each, on the device
  int bits = 16, group = 0;
  bool aligned = false;
};

// Joins the weights of the layer's routed experts. Returns nothing if they have several formats, or one that the
// kernels do not have.
std::optional<ExpertProducts> joined_experts(const GpuLayer& layer, GpuLinear GpuExpert::* kind, at::Device device);

}  // namespace magister::gpu
