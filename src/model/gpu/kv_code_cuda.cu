// Instantiates the kernels for pages of codes on GPUs. PagedAttention keeps four loads of 8 bytes in flight per lane,
// half the bytes of bf16 pages, in fewer registers. A key and its value are 258 bytes at E = 128, which take 14 cycles
// of a multiprocessor at 4.3 TB/s. Widening a code adds three integer operations and a product to the instructions that
// attention_cuda.cu counts. None of this was measured on a GPU.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/attention_kernels.h"
#include "model/gpu/kv_code_kernels.h"

using magister::gpu::Bf16;
using magister::gpu::E4m3;

#define MAGISTER_ATTENTION_OF_CODES(LANES, WIDE)                                         \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<Bf16, LANES, 1, true, WIDE, E4m3>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<Bf16, LANES, 4, true, WIDE, E4m3>); \
  MAGISTER_INSTANTIATE(magister::gpu::PagedAttention<Bf16, LANES, 8, true, WIDE, E4m3>)

MAGISTER_ATTENTION_OF_CODES(8, false);
MAGISTER_ATTENTION_OF_CODES(16, false);
MAGISTER_ATTENTION_OF_CODES(32, false);
MAGISTER_ATTENTION_OF_CODES(32, true);
MAGISTER_INSTANTIATE(magister::gpu::GatherCodes);
