// The rule by which the experts of a layer are multiplied in passes of prompts: all by one launch, or one after the
// other by a library, whose products must know their rows on the host.
// Legend: X experts of which a router chooses k for each token.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "model/gpu/decoder_experts.h"

namespace magister::gpu {

// Seconds of the two products of a layer's experts, with the calls of the host and the wait: calculated for an H200
// and tokens that are spread evenly (decision 061), not measured. factors: kBFloat16, also of codes, which both ways
// convert alike; kFloat8_e4m3fn; kFloat.
struct PromptTimes {
  double one_launch, by_library;
};
PromptTimes prompt_times(const ExpertWidths& widths, at::ScalarType factors, std::int64_t tokens);

// True where one launch multiplies experts of this shape and format. It follows from these alone and never from a pass,
// so that a row always has the same bits.
bool groups_prompts(const ExpertWidths& widths, at::ScalarType factors);

}  // namespace magister::gpu
