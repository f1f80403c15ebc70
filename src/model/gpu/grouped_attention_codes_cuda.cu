// Grouped attention over pages of codes for GPUs: the instances that attention.cpp chooses from.
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
