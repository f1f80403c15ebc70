// The kernel of peer_sum_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "parallel/gpu/peer_sum_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::PeerSum);
