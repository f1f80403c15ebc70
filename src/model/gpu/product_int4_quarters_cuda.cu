// Decode products of int4 weights for GPUs with four scales per 128 inputs. A separate file, so that files compile in
// parallel.
#include "model/gpu/product_instances.cuh"

MAGISTER_PRODUCTS(4, 4, kMiddle);
MAGISTER_FEW_PRODUCTS(4, 4, kZero);
MAGISTER_FEW_PRODUCTS(4, 4, kMinimum);

// MXFP4: e2m1 codes, one scale per 32 inputs.
using magister::gpu::DecodeProduct;
MAGISTER_INSTANTIATE(DecodeProduct<4, 4, magister::gpu::kFloatCodes, 1, 1, true>);
MAGISTER_INSTANTIATE(DecodeProduct<4, 4, magister::gpu::kFloatCodes, 8, 2, true>);
MAGISTER_INSTANTIATE(DecodeProduct<4, 4, magister::gpu::kFloatCodes, 4, 1, false>);
