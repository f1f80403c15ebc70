// Instantiates the kernels of attention_row_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/attention_row_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::RepeatKeys<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::RepeatKeys<float>);
MAGISTER_INSTANTIATE(magister::gpu::GateOutputs<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::GateOutputs<float>);
