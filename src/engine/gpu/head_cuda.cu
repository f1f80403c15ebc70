// The kernel of head_kernel.h for GPUs.
#include "engine/gpu/head_kernel.h"
#include "magister/device/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::ReduceLogits);
