// Instantiates the kernels of elementwise_kernels.h and embed_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/embed_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::EmbedRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::EmbedRows<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddRmsNorm<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddRmsNorm<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddRmsNorm<magister::gpu::Bf16, float>);
MAGISTER_INSTANTIATE(magister::gpu::AddLayerNorm<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddLayerNorm<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddLayerNorm<magister::gpu::Bf16, float>);
MAGISTER_INSTANTIATE(magister::gpu::RotateHeads<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::RotateHeads<float>);
MAGISTER_INSTANTIATE(magister::gpu::NormRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::NormRows<float>);
MAGISTER_INSTANTIATE(magister::gpu::GateMultiply<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::GateMultiply<float>);
