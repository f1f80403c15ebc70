// Instantiates the kernels of encoder_attention_kernel.h for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/encoder_attention_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::EncoderAttention<false>);
MAGISTER_INSTANTIATE(magister::gpu::EncoderAttention<true>);
