// Drawing tokens where the logits are: only ids and log-probabilities leave the GPU.
// Legend: R rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "magister/device/launch.h"
#include "magister/engine/sampler.h"

namespace magister {

// One token a row of [R, V] f32 on the queue's device, with the uniform number of its key. The same as sample_token() gives without history
// and mask, but where a draw lies within a rounding error of the border of two tokens. Waits for the device.
std::vector<SampledToken> sample_rows_on_device(const at::Tensor& logits_RV, const std::vector<double>& uniforms,
                                                const SamplingParams& params, const gpu::Queue& queue);

}  // namespace magister
