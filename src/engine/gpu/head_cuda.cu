// The kernel of head_kernel.h for GPUs.
#include "engine/gpu/head_kernel.h"
#include "magister/model/gpu/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::ReduceLogits);
