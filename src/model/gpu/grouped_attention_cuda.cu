// Grouped attention for GPUs: the instances that attention.cpp chooses from.
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
