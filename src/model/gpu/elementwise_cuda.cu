// The kernels of elementwise_kernels.h for GPUs.
#include "model/gpu/elementwise_kernels.h"
#include "magister/device/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::EmbedRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::EmbedRows<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddRmsNorm<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddRmsNorm<float>);
MAGISTER_INSTANTIATE(magister::gpu::RotateHeads<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::RotateHeads<float>);
MAGISTER_INSTANTIATE(magister::gpu::SiluMultiply<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SiluMultiply<float>);
