// Decode products of int4 weights for GPUs, apart from the others so that two compilers can work at once.
#include "model/gpu/product_instances.cuh"

MAGISTER_PRODUCTS(4, 1, false);
MAGISTER_PRODUCTS(4, 1, true);
MAGISTER_PRODUCTS(4, 2, false);
MAGISTER_PRODUCTS(4, 2, true);
MAGISTER_PRODUCTS(4, 4, false);
MAGISTER_PRODUCTS(4, 4, true);
