// Decode products of int4 weights for GPUs with two scales for 128 inputs, apart from the others so that compilers can work at once.
#include "model/gpu/product_instances.cuh"

MAGISTER_PRODUCTS(4, 2, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 2, kZero);
MAGISTER_FEW_PRODUCTS(4, 2, kMinimum);
