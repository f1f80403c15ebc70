// Instantiates the kernels of head_norm_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/head_norm_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::SumHeadSquares<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SumHeadSquares<float>);
MAGISTER_INSTANTIATE(magister::gpu::NormHeads<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::NormHeads<float>);
