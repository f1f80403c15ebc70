// Paged attention for GPUs: the instances that attention.cpp chooses from.
// ptxas for sm_90 spills nothing. With 1 or 4 heads per block it uses 54 to 80 registers (3 blocks of 256 threads per
// multiprocessor, 48 KB of bf16 in flight), with 8 heads 117 to 128 (2 blocks, 32 KB). Shared memory at E = 128: 4, 16
// and 32 KB. A key and its value are 512 bytes at E = 128, which take 27 cycles of a multiprocessor at 4.3 TB/s. Their
// instructions take 21 cycles with 4 heads and 32 with 8 (counted in sm_90's code). So 8 heads reach 0.85 of that speed
// without tensor cores, which would round the probabilities.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/attention_kernels.h"

using magister::gpu::Bf16;

#define MAGISTER_ATTENTION(A, LANES, WIDE)                                       \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 1, true, WIDE>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 1, false, WIDE>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 4, true, WIDE>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 4, false, WIDE>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 8, true, WIDE>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 8, false, WIDE>)

MAGISTER_ATTENTION(Bf16, 8, false);
MAGISTER_ATTENTION(Bf16, 16, false);
MAGISTER_ATTENTION(Bf16, 32, false);
MAGISTER_ATTENTION(Bf16, 32, true);
MAGISTER_ATTENTION(float, 8, false);
MAGISTER_ATTENTION(float, 16, false);
MAGISTER_ATTENTION(float, 32, false);
MAGISTER_ATTENTION(float, 32, true);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<float>);
