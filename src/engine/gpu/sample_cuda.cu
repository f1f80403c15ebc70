// The sampler for GPUs: one kernel, one block per row.
// ptxas for sm_90: 90 registers for 512 threads, no spills, 41 KB of shared memory: one block per multiprocessor, with
// 32 KB of logits in flight. So a pass over 128,256 logits takes about 10 us, and with exp in double about 30 us
// (calculated, not measured).
#include "engine/gpu/sample_kernel.h"
#include "magister/device/launch_cuda.cuh"

MAGISTER_INSTANTIATE(magister::gpu::SampleRows);
