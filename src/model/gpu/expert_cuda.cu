// Instantiates the kernels of expert_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/expert_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::ChooseExperts);
MAGISTER_INSTANTIATE(magister::gpu::SumExperts<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SumExperts<float>);
