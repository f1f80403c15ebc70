// Decode products of int4 weights for GPUs with one scale per 128 inputs. A separate file, so that files compile in
// parallel.
#include "model/gpu/product_instances.cuh"

MAGISTER_PRODUCTS(4, 1, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 1, kZero);
MAGISTER_FEW_PRODUCTS(4, 1, kMinimum);
