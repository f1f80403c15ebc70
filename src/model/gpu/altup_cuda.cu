// Instantiates the kernels of altup_kernels.h and altup_end_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/altup_end_kernels.h"
#include "model/gpu/altup_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::PredictStream);
MAGISTER_INSTANTIATE(magister::gpu::CorrectStream<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::CorrectStream<float>);
MAGISTER_INSTANTIATE(magister::gpu::CorrectStream<magister::gpu::Bf16, float>);
MAGISTER_INSTANTIATE(magister::gpu::SpreadStream<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SpreadStream<float>);
MAGISTER_INSTANTIATE(magister::gpu::JoinStream<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::JoinStream<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddLaurel<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddLaurel<float>);
