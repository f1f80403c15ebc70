// Grouped attention for GPUs: the instances that attention.cpp chooses from.
// ptxas for sm_80, sm_90 and sm_100 spills nothing. Registers for sm_90: 160 at E = 64 (3 blocks of 128 threads per
// multiprocessor, 144 KB in flight), 201 to 221 at 80, 96 and 128 with 16 heads, 167 at 128 with 8 (2 blocks, 192 KB),
// 246 and 248 at 256 and 192 (2 blocks of 64 threads). Instructions: src/decisions/056.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/grouped_attention_kernels.h"

#define MAGISTER_GROUPED_ATTENTION(E, V, TILES) MAGISTER_INSTANTIATE(magister::gpu::GroupedAttention<E, V, TILES>)

MAGISTER_GROUPED_ATTENTION(64, 64, 1);
MAGISTER_GROUPED_ATTENTION(64, 64, 2);
MAGISTER_GROUPED_ATTENTION(80, 80, 1);
MAGISTER_GROUPED_ATTENTION(96, 96, 1);
MAGISTER_GROUPED_ATTENTION(128, 128, 1);
MAGISTER_GROUPED_ATTENTION(128, 128, 2);
MAGISTER_GROUPED_ATTENTION(192, 128, 1);
MAGISTER_GROUPED_ATTENTION(256, 256, 1);
MAGISTER_INSTANTIATE(magister::gpu::FoldChunks);
