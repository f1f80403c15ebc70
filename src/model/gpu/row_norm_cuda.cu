// Instantiates the kernels of row_norm_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/row_norm_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::AddRowNorm<2>);
MAGISTER_INSTANTIATE(magister::gpu::AddRowNorm<4>);
