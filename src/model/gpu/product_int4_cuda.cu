// Decode products of int4 weights for GPUs, apart from the others so that two compilers can work at once.
#include "model/gpu/product_instances.cuh"

MAGISTER_PRODUCTS(4, 1, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 1, kZero);
MAGISTER_FEW_PRODUCTS(4, 1, kMinimum);
MAGISTER_PRODUCTS(4, 2, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 2, kZero);
MAGISTER_FEW_PRODUCTS(4, 2, kMinimum);
MAGISTER_PRODUCTS(4, 4, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 4, kZero);
MAGISTER_FEW_PRODUCTS(4, 4, kMinimum);
