// Checks CUDA calls: the exception carries the text of the call, CUDA's error text, rank and host.
#pragma once

#include <cuda_runtime_api.h>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"

namespace magister {

inline void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  fail(ExitCode::kInternal,
       "rank {} on {}: {} failed: {} (the GPU cannot be used any more); run the same command again, and leave this "
       "host out if it comes back",
       log_world_rank(), host_name(), call, cudaGetErrorString(code));
}

}  // namespace magister

#define MAGISTER_CHECK_CUDA(call) ::magister::check_cuda((call), #call)
