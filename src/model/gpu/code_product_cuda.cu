// Products of codes with the rows of many texts for GPUs: the instances that code_product.cpp chooses from.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/code_product_kernel.h"

MAGISTER_INSTANTIATE(magister::gpu::CodeProduct<8, true>);
MAGISTER_INSTANTIATE(magister::gpu::CodeProduct<8, false>);
MAGISTER_INSTANTIATE(magister::gpu::CodeProduct<4, false>);
MAGISTER_INSTANTIATE(magister::gpu::AddPieces);
