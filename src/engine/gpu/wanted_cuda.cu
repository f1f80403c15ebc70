// The kernel of wanted_kernel.h for GPUs.
#include "engine/gpu/wanted_kernel.h"
#include "magister/device/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::WantedLogits);
