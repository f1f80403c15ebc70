// The kernels of optimizer_kernels.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/optimizer_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::Adamw);
MAGISTER_INSTANTIATE(magister::gpu::BlockSquares);
