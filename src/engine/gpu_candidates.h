// Finds the candidates of guided rows on the GPU: only the candidates and the row's log-sum-exp are copied to the host.
// Legend: R rows, V vocabulary, C candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "magister/device/launch.h"
#include "magister/engine/sampler.h"

namespace magister {

// The largest number of candidates or kept tokens per row on the device; rows with more of them are copied to the host.
extern const std::int64_t kMostGpuCandidates;

// Data of a row: prompt and text, for the penalty; and the bits of the tokens that may come next, [(V + 63) / 64] words
// (empty: all tokens may).
struct RowHistory {
  std::span<const TokenId> tokens;
  std::span<const std::uint64_t> allowed;
};

// Finds the candidates of each row of [R, V] f32 on the queue's device. Either all rows have bits or none. Without bits
// the rows are restored before return. With bits the logits of excluded tokens are overwritten, so the rows must be the
// caller's own. A row with fewer allowed tokens than `count` gets fewer candidates. top: number of the model's own most
// probable tokens to return. Waits for the device.
std::vector<CandidateRow> candidates_on_device(const at::Tensor& logits_RV, const std::vector<RowHistory>& histories,
                                               const SamplingParams& params, std::int64_t count, std::int64_t top,
                                               const gpu::Queue& queue);

}  // namespace magister
