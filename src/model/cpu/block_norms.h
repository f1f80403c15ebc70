// The norms around a block on the fast path: what it reads, and how its output joins the residual stream. Local.
#pragma once

#include <cstdint>

#include "magister/model/weights.h"

namespace magister {

// x_RD as the block reads it: normed into scratch_RD, which may be x_RD, or as it stands where the block has no norm there.
const float* block_input(const BlockNorms& norms, float eps, const float* x_RD, float* scratch_RD, std::int64_t rows,
                         std::int64_t D);
// hidden_RD += out_RD, after the block's norm where it has one. out_RD is overwritten.
void add_block_output(const BlockNorms& norms, float eps, float* out_RD, float* hidden_RD, std::int64_t rows,
                      std::int64_t D);

}  // namespace magister
