// Products of a few rows with the gate or the rotation behind them, for GPUs. A separate file, so that files compile in
// parallel.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/paired_ends.h"
#include "model/gpu/ring_product_kernel.h"

#define MAGISTER_PAIRED_PRODUCTS(BITS, PARTS)                                                \
  MAGISTER_INSTANTIATE(magister::gpu::RingProduct<BITS, PARTS, 1, magister::gpu::GateEnds>); \
  MAGISTER_INSTANTIATE(magister::gpu::RingProduct<BITS, PARTS, 1, magister::gpu::RotatedEnds>)

MAGISTER_PAIRED_PRODUCTS(16, 1);
MAGISTER_PAIRED_PRODUCTS(8, 1);
MAGISTER_PAIRED_PRODUCTS(8, 2);
MAGISTER_PAIRED_PRODUCTS(4, 1);
MAGISTER_PAIRED_PRODUCTS(4, 2);
MAGISTER_PAIRED_PRODUCTS(4, 4);
