// Instantiates the kernels of mlp_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/mlp_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::ActivateRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::ActivateRows<float>);
