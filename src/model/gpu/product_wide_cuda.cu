// Products of up to 256 rows for GPUs. A separate file, so that files compile in parallel.
// ptxas for sm_90: no instance spills. bf16 uses 204 registers with 128 rows per block and 122 with 64, so one and two
// blocks of 256 threads fit on a multiprocessor; int8 190 to 204, int4 218 to 231. Shared memory: bf16 80 and 60 KB,
// int8 80 KB, int4 96 KB.
#include "model/gpu/product_instances.cuh"

MAGISTER_WIDE_PRODUCT(16, 1, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(16, 1, kMiddle, 8);
MAGISTER_WIDE_PRODUCT(8, 1, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(8, 1, kZero, 4);
MAGISTER_WIDE_PRODUCT(8, 1, kMinimum, 4);
MAGISTER_WIDE_PRODUCT(8, 2, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(8, 2, kZero, 4);
MAGISTER_WIDE_PRODUCT(8, 2, kMinimum, 4);
MAGISTER_WIDE_PRODUCT(4, 1, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(4, 1, kZero, 4);
MAGISTER_WIDE_PRODUCT(4, 1, kMinimum, 4);
MAGISTER_WIDE_PRODUCT(4, 2, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(4, 2, kZero, 4);
MAGISTER_WIDE_PRODUCT(4, 2, kMinimum, 4);
MAGISTER_WIDE_PRODUCT(4, 4, kMiddle, 4);
MAGISTER_WIDE_PRODUCT(4, 4, kZero, 4);
MAGISTER_WIDE_PRODUCT(4, 4, kMinimum, 4);
MAGISTER_INSTANTIATE(magister::gpu::WideProduct<4, 4, magister::gpu::kFloatCodes, 4>);
