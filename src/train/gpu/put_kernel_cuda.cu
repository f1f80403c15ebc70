// The kernel of put_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/put_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::PutNumbers);
