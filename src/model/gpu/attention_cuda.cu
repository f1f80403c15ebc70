// Paged attention for GPUs: the instances that attention.cpp chooses from.
// ptxas for sm_90, nothing spills: 51 to 80 registers with 1 or 4 heads a block (3 blocks of 256 threads a multiprocessor, 48 KB of
// bf16 under way), 128 with 8 (2 blocks, 32 KB). Shared memory at E = 128: 4, 16 and 32 KB. Of 8 heads and E = 128 a key costs 18
// cycles of fused multiply-adds and widening where its 512 bytes take 27 at 4.3 TB/s (counted, not measured).
#include "magister/model/gpu/launch_cuda.cuh"
#include "model/gpu/attention_kernels.h"

using magister::gpu::Bf16;

#define MAGISTER_ATTENTION(A, LANES)                                   \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 1>);    \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 4>);    \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 8>)

MAGISTER_ATTENTION(Bf16, 8);
MAGISTER_ATTENTION(Bf16, 16);
MAGISTER_ATTENTION(Bf16, 32);
MAGISTER_ATTENTION(float, 8);
MAGISTER_ATTENTION(float, 16);
MAGISTER_ATTENTION(float, 32);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<float>);
