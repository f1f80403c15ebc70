// Starts a GroupedProduct: chooses the instance for the format of the experts' weights and the rows of an item.
// Legend: X experts, I items.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/grouped_product_kernel.h"

namespace magister::gpu {

// The most rows of an item, for a pass of R rows: 8, 16 or 32, and about one and a half times as many as an expert gets
// on average. More would leave the tensor cores idle, fewer would read more experts' weights twice, from the L2 cache.
int item_rows(std::int64_t R, std::int64_t k, std::int64_t X);

// arguments: x and the result of all rows, and the weight without places; M is the most rows of an item, at most 32.
// aligned: all places and rows of the weights, of x and of the result are multiples of 16 bytes. Queued.
void grouped_product(const ProductArguments& arguments, const ExpertPlace* places_X, const ExpertRows* items_I, int I,
                     int bits, int group, bool aligned, const Queue& queue);

}  // namespace magister::gpu
