// Decode products of bf16 and int8 weights, and dequantisation, for GPUs: the instances that product.cpp chooses from.
// ptxas for sm_90, no instance spills. Registers at M = 1: bf16 76, int8 105 to 116, int4 110 to 122, so 3, 2 and 2 blocks of
// 256 threads fit a multiprocessor: 96, 64 and 64 KB of weights under way where about 40 KB fill the memory's latency. Shared
// memory: 5 KB a block. M = 3 to 8, N >= 4224: 84, 114 to 126, 119 to 128. M up to 64: 128 to 254, one block.
// Waves on 132 multiprocessors at M = 1, 16 outputs a block (counted, not measured): N = 4096 is 256 blocks, 1.94 each; 6144:
// 2.9; 8192: 3.9; 10240: 4.8; 28672: 13.6: each loses 3 % in its last wave. 57344: 27.2; 128256: 60.7.
#include "magister/model/gpu/launch_cuda.cuh"
#include "model/gpu/dequantize_kernel.h"
#include "model/gpu/product_instances.cuh"

using magister::gpu::Bf16;

MAGISTER_PRODUCTS(16, 1, false);
MAGISTER_PRODUCTS(8, 1, false);
MAGISTER_PRODUCTS(8, 1, true);
MAGISTER_PRODUCTS(8, 2, false);
MAGISTER_PRODUCTS(8, 2, true);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<8, Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<8, float>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<4, Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::Dequantize<4, float>);
