// Products of at most eight rows for GPUs. A separate file, so that files compile in parallel. ptxas for sm_90: no
// instance spills. Registers with blocks of 16 outputs: bf16 55, int8 64 and 72, int4 64 to 93; with 32: 64 to 127.
// Shared memory of a block with eight warps: bf16 41 KB, int8 and int4 53 KB and its scales; with sixteen twice as
// much. So 4 blocks of eight warps fit on a multiprocessor of an H200, and two of sixteen (with several groups in a
// step one).
// Instructions for 1 KB of weights at M = 1 (counted in sm_90's code): bf16 66, int8 150 (189 with groups of 32), int4
// 212 (246 and 275 with groups of 64 and 32). At 0.85, 0.72 and 0.60 of 4.3 TB/s there is time for 260, 305 and 356.
#include "model/gpu/product_instances.cuh"

MAGISTER_RING_PRODUCTS(16, 1);
MAGISTER_RING_PRODUCTS(8, 1);
MAGISTER_RING_PRODUCTS(8, 2);
MAGISTER_RING_PRODUCTS(4, 1);
MAGISTER_RING_PRODUCTS(4, 2);
MAGISTER_RING_PRODUCTS(4, 4);
