// The kernels of norm_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/norm_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::TrainNorm<float, float>);
MAGISTER_INSTANTIATE(magister::gpu::TrainNorm<float, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TrainNormBack<float, float>);
MAGISTER_INSTANTIATE(magister::gpu::TrainNormBack<float, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TrainNorm<magister::gpu::Bf16, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TrainNormBack<magister::gpu::Bf16, magister::gpu::Bf16>);
