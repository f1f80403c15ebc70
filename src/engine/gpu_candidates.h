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

// Of a row: prompt and text, for the penalty, and the bits of the tokens that may come next, [(V + 63) / 64] words; none: all may.
struct RowHistory {
  std::span<const TokenId> tokens;
  std::span<const std::uint64_t> allowed;
};

// Of each row of [R, V] f32 on the queue's device. Where all tokens may come next the rows are as they were when this returns; either all rows
// have bits or none, and with them the rows are the caller's own, for what may not come is overwritten. Of a row with fewer such tokens than
// `count` there are as many candidates. top: of the model's own most probable tokens, as many. Waits for the device.
std::vector<CandidateRow> candidates_on_device(const at::Tensor& logits_RV, const std::vector<RowHistory>& histories,
                                               const SamplingParams& params, std::int64_t count, std::int64_t top,
                                               const gpu::Queue& queue);

}  // namespace magister
