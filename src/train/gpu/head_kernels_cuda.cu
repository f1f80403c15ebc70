// The kernels of head_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/head_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::RowNumbers);
MAGISTER_INSTANTIATE(magister::gpu::LogitGradient<float>);
MAGISTER_INSTANTIATE(magister::gpu::LogitGradient<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::PlaceNumbers<float>);
MAGISTER_INSTANTIATE(magister::gpu::PlaceNumbers<magister::gpu::Bf16>);
