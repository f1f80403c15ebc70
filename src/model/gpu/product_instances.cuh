// MAGISTER_PRODUCTS(bits, parts, minimum): the instances of DecodeProduct for 8, 16, 32 and 64 rows, and the unaligned one.
// Why a macro: an explicit instantiation cannot stand in a template. The choice among them: product.cpp.
#pragma once

#include "magister/model/gpu/launch_cuda.cuh"
#include "model/gpu/product_kernels.h"

#define MAGISTER_PRODUCTS(BITS, PARTS, MINIMUM)                                          \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 1, 1>);        \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 1, 2>);        \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 2, 2>);        \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 4, 2>);        \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 8, 2>);        \
  MAGISTER_INSTANTIATE(magister::gpu::DecodeProduct<BITS, PARTS, MINIMUM, 8, 1, false>)
