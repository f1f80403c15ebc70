// MAGISTER_PRODUCTS(bits, parts, offset): the instances of DecodeProduct for 8, 16, 32 and 64 rows, and the unaligned
// one. They are macros because an explicit instantiation cannot be in a template. product.cpp chooses among the
// instances.
#pragma once

#include "magister/device/launch_cuda.cuh"
#include "model/gpu/product_kernels.h"
#include "model/gpu/ring_product_kernel.h"
#include "model/gpu/wide_product_kernel.h"

#define MAGISTER_PRODUCT(BITS, PARTS, OFFSET, TILES, STACKS, ALIGNED) \
  MAGISTER_INSTANTIATE(                                               \
      magister::gpu::DecodeProduct<BITS, PARTS, magister::CodeFormat::Offset::OFFSET, TILES, STACKS, ALIGNED>)

#define MAGISTER_WIDE_PRODUCT(BITS, PARTS, OFFSET, TILES) \
  MAGISTER_INSTANTIATE(magister::gpu::WideProduct<BITS, PARTS, magister::CodeFormat::Offset::OFFSET, TILES>)

#define MAGISTER_RING_PRODUCTS(BITS, PARTS)                         \
  MAGISTER_INSTANTIATE(magister::gpu::RingProduct<BITS, PARTS, 1>); \
  MAGISTER_INSTANTIATE(magister::gpu::RingProduct<BITS, PARTS, 2>)

// For weights with zero points or minima, which are not on a measured path: fewer sizes, because each takes nvcc 2 s.
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
