// Instantiates the kernels of head_steps_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/head_steps_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::RotateHeadsInSteps<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::RotateHeadsInSteps<float>);
