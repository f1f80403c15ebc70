// Decode products of bf16 and int8 weights, and dequantisation, for GPUs: the instances that product.cpp chooses from.
// ptxas for sm_90: no instance spills (tests/gpu/device_code_test.py). Registers at M = 1: bf16 70, int8 85 to 99, int4
// 94 to 106. So 3, 2 and 2 blocks of 256 threads fit on a multiprocessor: 72 to 96, 48 to 64 and 48 to 64 KB of weights
// in flight, where about 40 KB cover the memory's latency. Shared memory: 5 KB per block. Registers at M = 3 to 8, N >=
// 4224: 72, 95 to 99, 96 to 115. M up to 64: 96 to 254, one block.
// Instructions for 1 KB of weights at M = 1 (counted in sm_90's code): bf16 57, int8 145 (196 with groups of 32), int4
// 196 (306 with groups of 32). At 0.85, 0.72 and 0.60 of 4.3 TB/s each multiprocessor has time for 260, 305 and 356.
// Waves on 132 multiprocessors at M = 1, 16 outputs per block (counted, not measured): N = 4096 is 256 blocks, 1.94
// waves; 6144: 2.9; 8192: 3.9; 10240: 4.8; 28672: 13.6: each loses 3 % in its last wave. 57344: 27.2; 128256: 60.7.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/dequantize_kernel.h"
#include "model/gpu/product_instances.cuh"

using magister::gpu::Bf16;

MAGISTER_PRODUCTS(16, 1, kMiddle);
MAGISTER_PRODUCTS(8, 1, kMiddle);
MAGISTER_FEW_PRODUCTS(8, 1, kZero);
MAGISTER_FEW_PRODUCTS(8, 1, kMinimum);
MAGISTER_PRODUCTS(8, 2, kMiddle);
MAGISTER_FEW_PRODUCTS(8, 2, kZero);
MAGISTER_FEW_PRODUCTS(8, 2, kMinimum);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<8, Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<8, float>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<4, Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<4, float>);
