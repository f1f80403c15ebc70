// Instantiates the kernels of per_layer_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/per_layer_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::PerLayerVectors<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::PerLayerVectors<float>);
MAGISTER_INSTANTIATE(magister::gpu::GateVectors<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::GateVectors<float>);
MAGISTER_INSTANTIATE(magister::gpu::AddNormed<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::AddNormed<float>);
MAGISTER_INSTANTIATE(magister::gpu::SumGates<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SumGates<float>);
MAGISTER_INSTANTIATE(magister::gpu::SparseGate<magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::SparseGate<float>);
