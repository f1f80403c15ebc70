// Instantiates the kernels of expert_kernels.h and route_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/expert_kernels.h"
#include "model/gpu/pack_mxfp4_kernel.h"
#include "model/gpu/route_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::ChooseExperts);
MAGISTER_INSTANTIATE(magister::gpu::PackMxfp4);
MAGISTER_INSTANTIATE(magister::gpu::GatherTokens<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::GatherTokens<float>);
MAGISTER_INSTANTIATE(magister::gpu::SumExperts<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SumExperts<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddNormedRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddNormedRows<float>);
