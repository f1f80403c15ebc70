// Paged attention for GPUs: the instances that attention.cpp chooses from.
// ptxas for sm_90, nothing spills: 54 to 80 registers with 1 or 4 heads a block (3 blocks of 256 threads per multiprocessor, 48 KB of
// bf16 in flight), 117 to 128 with 8 (2 blocks, 32 KB). Shared memory at E = 128: 4, 16 and 32 KB. A key and its value are 512
// bytes at E = 128, 27 cycles of a multiprocessor at 4.3 TB/s; their instructions are 21 cycles with 4 heads, 32 with 8 (sm_90's
// code, counted): 8 heads on the plain units end at 0.85 of that speed, and the tensor cores would round the probabilities.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/attention_kernels.h"

using magister::gpu::Bf16;

#define MAGISTER_ATTENTION(A, LANES)                                       \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 1, true>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 1, false>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 4, true>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 4, false>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 8, true>);  \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<A, LANES, 8, false>)

MAGISTER_ATTENTION(Bf16, 8);
MAGISTER_ATTENTION(Bf16, 16);
MAGISTER_ATTENTION(Bf16, 32);
MAGISTER_ATTENTION(float, 8);
MAGISTER_ATTENTION(float, 16);
MAGISTER_ATTENTION(float, 32);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::CombineChunks<float>);
