// Products of a few rows with the gate or the rotation behind them, for GPUs. A separate file, so that files compile in
// parallel. ptxas for sm_90: no instance spills. Registers: bf16 48 and 56, int8 64 to 72, int4 64 to 96. Instructions
// for 1 KB of weights at M = 1: bf16 66, int8 148 (186 with groups of 32), int4 201 (252 and 274).
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
