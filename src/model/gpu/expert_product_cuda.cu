// Instantiates the kernels of experts in passes of prompts for GPUs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/dequantize_experts_kernel.h"
#include "model/gpu/expert_product_kernel.h"
#include "model/gpu/prompt_routes_kernels.h"

MAGISTER_INSTANTIATE(magister::gpu::CountRoutes);
MAGISTER_INSTANTIATE(magister::gpu::PlaceExperts);
MAGISTER_INSTANTIATE(magister::gpu::PlaceRoutes);
MAGISTER_INSTANTIATE(magister::gpu::ExpertProduct);
MAGISTER_INSTANTIATE(magister::gpu::FloatExpertProduct);
MAGISTER_INSTANTIATE(magister::gpu::DequantizeExperts<8, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::DequantizeExperts<4, magister::gpu::Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::DequantizeExperts<8, float>);
MAGISTER_INSTANTIATE(magister::gpu::DequantizeExperts<4, float>);
MAGISTER_INSTANTIATE(magister::gpu::WidenExperts);
