// Products of experts with int4 weights for GPUs. A separate file, so that files compile in parallel.
#include "model/gpu/grouped_instances.cuh"

MAGISTER_GROUPED_PRODUCTS(4, 1, kMiddle);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 1, kZero);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 1, kMinimum);
MAGISTER_GROUPED_PRODUCTS(4, 2, kMiddle);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 2, kZero);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 2, kMinimum);
MAGISTER_GROUPED_PRODUCTS(4, 4, kMiddle);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 4, kZero);
MAGISTER_FEW_GROUPED_PRODUCTS(4, 4, kMinimum);
MAGISTER_GROUPED_PRODUCTS(4, 4, kFloatCodes);
