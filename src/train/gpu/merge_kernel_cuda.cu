// The kernel of merge_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "train/gpu/merge_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::MergeFactors);
