// The kernels of pass_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/pass_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::TurnHeads<float, float>);
MAGISTER_INSTANTIATE(magister::gpu::TurnHeads<magister::gpu::Bf16, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TrainGate<float>);
MAGISTER_INSTANTIATE(magister::gpu::TrainGate<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TrainGateBack<float>);
MAGISTER_INSTANTIATE(magister::gpu::TrainGateBack<magister::gpu::Bf16>);
