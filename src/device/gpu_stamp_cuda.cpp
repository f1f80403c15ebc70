// Stamps are CUDA events with timing, on the legacy default stream, which all GPU code here uses.
#include <cuda_runtime_api.h>

#include "magister/device/check_cuda.cuh"
#include "magister/device/gpu_stamp.h"

namespace magister {

GpuStamp GpuStamp::record() {
  cudaEvent_t event = nullptr;
  MAGISTER_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  GpuStamp stamp;
  stamp.event_ = event;
  MAGISTER_CHECK_CUDA(cudaEventRecord(event, nullptr));
  return stamp;
}

GpuStamp::~GpuStamp() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

double GpuStamp::milliseconds_since(const GpuStamp& earlier) const {
  float milliseconds = 0;
  MAGISTER_CHECK_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
  MAGISTER_CHECK_CUDA(
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_), static_cast<cudaEvent_t>(event_)));
  return static_cast<double>(milliseconds);
}

}  // namespace magister
