// MAGISTER_PRODUCTS(bits, parts, offset): the instances of DecodeProduct for 8, 16, 32 and 64 rows, and the unaligned one.
// Why a macro: an explicit instantiation cannot stand in a template. The choice among them: product.cpp.
#pragma once

#include "magister/device/launch_cuda.cuh"
#include "model/gpu/product_kernels.h"
#include "model/gpu/wide_product_kernel.h"

#define MAGISTER_PRODUCT(BITS, PARTS, OFFSET, TILES, STACKS, ALIGNED) \
  MAGISTER_INSTANTIATE(                                               \
      magister::gpu::DecodeProduct<BITS, PARTS, magister::CodeFormat::Offset::OFFSET, TILES, STACKS, ALIGNED>)

#define MAGISTER_WIDE_PRODUCT(BITS, PARTS, OFFSET, TILES) \
  MAGISTER_INSTANTIATE(magister::gpu::WideProduct<BITS, PARTS, magister::CodeFormat::Offset::OFFSET, TILES>)

// Of weights with zeros or minima, which no measured path has: fewer sizes, for each costs nvcc 2 s.
#define MAGISTER_FEW_PRODUCTS(BITS, PARTS, OFFSET)   \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 1, 1, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 8, 2, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 4, 1, false)

#define MAGISTER_PRODUCTS(BITS, PARTS, OFFSET)       \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 1, 1, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 1, 2, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 2, 2, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 4, 2, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 8, 2, true); \
  MAGISTER_PRODUCT(BITS, PARTS, OFFSET, 4, 1, false)
