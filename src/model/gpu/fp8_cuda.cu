// Instantiates the kernels of fp8_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/fp8_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::QuantizeRows<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::NormQuantize<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::NormQuantize<float>);
MAGISTER_INSTANTIATE(magister::gpu::GateQuantize);
