// Products of experts for GPUs: the instances that grouped_product.cpp chooses from, for bf16 and int8.
#include "model/gpu/grouped_instances.cuh"

MAGISTER_INSTANTIATE(magister::gpu::GroupRoutes);
MAGISTER_GROUPED_PRODUCTS(16, 1, kMiddle);
MAGISTER_GROUPED_PRODUCTS(8, 1, kMiddle);
MAGISTER_FEW_GROUPED_PRODUCTS(8, 1, kZero);
MAGISTER_FEW_GROUPED_PRODUCTS(8, 1, kMinimum);
MAGISTER_GROUPED_PRODUCTS(8, 2, kMiddle);
MAGISTER_FEW_GROUPED_PRODUCTS(8, 2, kZero);
MAGISTER_FEW_GROUPED_PRODUCTS(8, 2, kMinimum);
MAGISTER_GROUPED_PRODUCTS(8, 1, kFloatCodes);
