// Products of a few rows whose outputs belong together in pairs, with what follows them in the same kernel. They have
// the bits of decode_product() and of the kernel behind it, so whoever gets false computes these instead.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/paired_ends.h"

namespace magister::gpu {

// arguments, bits, group, next: those of decode_product(); the result of `end` takes the place of out_MN. Returns
// false, and starts nothing, for more than eight rows (more than two of a weight of 4,224 outputs or more), for weights
// with zero points or minima, and where the kernel's accesses of 16 bytes or its shared memory do not fit.
bool gate_product(const ProductArguments& arguments, int bits, int group, const GateEnds& end, const Queue& queue,
                  const NextWeight& next = {});
bool rotate_product(const ProductArguments& arguments, int bits, int group, const RotatedEnds& end, const Queue& queue,
                    const NextWeight& next = {});

}  // namespace magister::gpu
