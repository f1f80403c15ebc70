// Chooses the instance of the decode product for a weight and a number of rows, up to 256, and starts it on a queue.
// The bits of a row are the same for every number of rows and every instance chosen here.
// Source: the measurements of bytes in flight in product_kernels.h and wide_product_kernel.h. Legend as there.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

constexpr int kMostDecodeRows = 256;

// bits: 16 (bf16), 8 or 4; group: 32, 64, 128 or 0; this function sets arguments.weight.group_shift and lead from
// group. Uses 16-byte loads if rows are multiples of 16 bytes, K and lead are whole 16 bytes, and x is aligned to 16
// bytes; otherwise it loads number by number, which gives correct results slowly. next: what products of at most eight
// rows may ask for.
void decode_product(ProductArguments arguments, int bits, int group, const Queue& queue, const NextWeight& next = {});

// The same for a plain weight [N, K] of every head, each with columns of x and of the result of its own. `first`: those
// of the first head. One launch.
void head_products(const ProductArguments& first, const HeadStrides& steps, const Queue& queue);

// Converts codes to bf16, or to f32 with float_out: [N, K] contiguous.
void dequantize(StoredWeight weight, int bits, int group, void* out_NK, bool float_out, const Queue& queue);

}  // namespace magister::gpu
