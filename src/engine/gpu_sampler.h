// Drawing tokens where the logits are: only ids and log-probabilities leave the GPU.
// Legend: R rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "magister/device/gpu.h"
#include "magister/device/launch.h"
#include "magister/engine/sampler.h"

namespace magister {

// Tokens that the device draws: their ids stand there for the next pass, and on the way to the host.
struct DrawnRows {
  at::Tensor ids_R;       // i32, on the device; -1: the row is not finite
  at::Tensor on_host_2R;  // ids, and log-probabilities as bits; whole when `copied` is done
  GpuEvent copied;

  // When `copied` is done.
  std::vector<SampledToken> tokens() const;
};

// One token a row of [R, V] f32 on the queue's device, with the uniform number of its key. The same as sample_token() gives without history
// and mask, but where a draw lies within a rounding error of the border of two tokens. Queued.
DrawnRows draw_rows_on_device(const at::Tensor& logits_RV, const std::vector<double>& uniforms,
                              const SamplingParams& params, const gpu::Queue& queue);

}  // namespace magister
