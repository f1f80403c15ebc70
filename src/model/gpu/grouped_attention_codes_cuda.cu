// Grouped attention over pages of codes for GPUs: the instances that attention.cpp chooses from.
// ptxas for sm_80, sm_90 and sm_100 spills nothing. Registers for sm_90: 143 at E = 128 with 8 heads (3 blocks of 128
// threads per multiprocessor, 145 KB in flight), 144 to 160 at 64, 80 and 96, 214 at 128 with 16 heads, 183 at 192 and
// 222 at 256 (2 blocks). Instructions: src/decisions/056.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/grouped_attention_kernels.h"

#define MAGISTER_GROUPED_CODES(E, V, TILES) MAGISTER_INSTANTIATE(magister::gpu::GroupedAttention<E, V, TILES, true>)

MAGISTER_GROUPED_CODES(64, 64, 1);
MAGISTER_GROUPED_CODES(64, 64, 2);
MAGISTER_GROUPED_CODES(80, 80, 1);
MAGISTER_GROUPED_CODES(96, 96, 1);
MAGISTER_GROUPED_CODES(128, 128, 1);
MAGISTER_GROUPED_CODES(128, 128, 2);
MAGISTER_GROUPED_CODES(192, 128, 1);
MAGISTER_GROUPED_CODES(256, 256, 1);
