// Products of a few rows with the gate or the rotation behind them, for GPUs. A separate file, so that files compile in
// parallel. ptxas for sm_90: no instance spills. Registers: bf16 47 and 52, int8 56 to 76, int4 70 to 96. Instructions
// for 1 KB of weights at M = 1: bf16 77, int8 175 (208 with groups of 32), int4 247 (281 and 313).
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
