// Draws tokens on the GPU: only ids and log-probabilities are copied to the host.
// Legend: R rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "magister/device/gpu.h"
#include "magister/device/launch.h"
#include "magister/engine/sampler.h"

namespace magister {

// Tokens drawn on the device: the ids stay there for the next pass, and are also copied to the host.
struct DrawnRows {
  at::Tensor ids_R;       // i32, on the device; -1: the row is not finite
  at::Tensor on_host_2R;  // ids, and log-probabilities as bits; complete when `copied` is done
  GpuEvent copied;

  // Call it only when `copied` is done.
  std::vector<SampledToken> tokens() const;
};

// Draws one token per row of [R, V] f32 on the queue's device, with the uniform number of its key. The result equals
// sample_token() without history and mask, except if a draw is within a rounding error of the border between two
// tokens. Only queues the work.
DrawnRows draw_rows_on_device(const at::Tensor& logits_RV, const std::vector<double>& uniforms,
                              const SamplingParams& params, const gpu::Queue& queue);

}  // namespace magister
