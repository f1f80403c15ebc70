// The norms around a block on the fast path: the block's input, and the addition of its output to the residual stream.
// Local.
#pragma once

#include <cstdint>

#include "magister/model/weights.h"

namespace magister {

// Returns the block's input: x_RD normed into scratch_RD (which may be x_RD), or x_RD itself if the block has no input
// norm.
const float* block_input(const BlockNorms& norms, float eps, const float* x_RD, float* scratch_RD, std::int64_t rows,
                         std::int64_t D);
// hidden_RD += out_RD, after the block's output norm if it has one. out_RD is overwritten.
void add_block_output(const BlockNorms& norms, float eps, float* out_RD, float* hidden_RD, std::int64_t rows,
                      std::int64_t D);

}  // namespace magister
