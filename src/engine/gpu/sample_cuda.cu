// The sampler for GPUs: one kernel, a block a row.
// ptxas for sm_90: 90 registers of 512 threads, nothing spilled, 41 KB of shared memory: one block a multiprocessor, 32 KB of
// logits in flight, so a pass over 128,256 logits is about 10 us, and exp in double about 30 (counted, not measured).
#include "engine/gpu/sample_kernel.h"
#include "magister/device/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::SampleRows);
