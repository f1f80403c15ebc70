// A guided row's candidates, found where the logits are: of a whole row only they and its log-sum-exp leave the GPU.
// Legend: R rows, V vocabulary, C candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/device/launch.h"
#include "magister/engine/sampler.h"

namespace magister {

// Candidates, or kept tokens, of a row at most; for more of them it comes to the host.
extern const std::int64_t kMostGpuCandidates;

// Of each row of [R, V] f32 on the queue's device, which are as they were when this returns. histories: prompt and text of each, for the
// penalty; top: of the model's own most probable tokens, as many. Waits for the device.
std::vector<CandidateRow> candidates_on_device(const at::Tensor& logits_RV,
                                               const std::vector<std::span<const TokenId>>& histories,
                                               const SamplingParams& params, std::int64_t count, std::int64_t top,
                                               const gpu::Queue& queue);

}  // namespace magister
