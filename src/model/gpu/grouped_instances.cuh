// MAGISTER_GROUPED_PRODUCTS(bits, parts, offset): the instances of GroupedProduct for items of 8, 16 and 32 rows, and
// the unaligned one. MAGISTER_FEW_GROUPED_PRODUCTS: those for weights with zero points or minima.
#pragma once

#include "magister/device/launch_cuda.cuh"
#include "model/gpu/grouped_product_kernel.h"

using magister::gpu::kFloatCodes;
constexpr auto kMiddle = magister::CodeFormat::Offset::kMiddle, kZero = magister::CodeFormat::Offset::kZero,
               kMinimum = magister::CodeFormat::Offset::kMinimum;

#define MAGISTER_GROUPED_PRODUCT(BITS, PARTS, OFFSET, TILES, STACKS, ALIGNED) \
  MAGISTER_INSTANTIATE(                                                       \
      magister::gpu::GroupedProduct<magister::gpu::DecodeProduct<BITS, PARTS, OFFSET, TILES, STACKS, ALIGNED>>)

#define MAGISTER_FEW_GROUPED_PRODUCTS(BITS, PARTS, OFFSET)   \
  MAGISTER_GROUPED_PRODUCT(BITS, PARTS, OFFSET, 4, 2, true); \
  MAGISTER_GROUPED_PRODUCT(BITS, PARTS, OFFSET, 4, 1, false)

#define MAGISTER_GROUPED_PRODUCTS(BITS, PARTS, OFFSET)       \
  MAGISTER_GROUPED_PRODUCT(BITS, PARTS, OFFSET, 1, 1, true); \
  MAGISTER_GROUPED_PRODUCT(BITS, PARTS, OFFSET, 2, 2, true); \
  MAGISTER_FEW_GROUPED_PRODUCTS(BITS, PARTS, OFFSET)
