// Which instance of the decode product serves a weight and a number of rows, and its start on a queue.
// Rows of x are few here, up to 256; a row's bits are the same for every number of rows and every instance that this chooses.
// Source: the measures of bytes in flight in product_kernels.h and wide_product_kernel.h. Legend as there.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

constexpr int kMostDecodeRows = 256;

// bits: 16 (bf16), 8 or 4; group: 32, 64, 128 or 0; arguments.weight.group_shift and lead are set from group here.
// Rows of 16-byte multiples, K and lead in whole 16 bytes, x aligned to 16 bytes: 16-byte loads; else number by number,
// which is right and slow.
void decode_product(ProductArguments arguments, int bits, int group, const Queue& queue);

// Codes -> bf16, or f32 with float_out, [N, K] contiguous.
void dequantize(StoredWeight weight, int bits, int group, void* out_NK, bool float_out, const Queue& queue);

}  // namespace magister::gpu
