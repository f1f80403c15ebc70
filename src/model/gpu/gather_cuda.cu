// Instantiates the kernel of gather_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/gather_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::GatherKeys<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::GatherKeys<float>);
