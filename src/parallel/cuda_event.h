// An event in a stream, for which another stream, or the host, can wait. Move-only.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "magister/device/check_cuda.cuh"

namespace magister {

class CudaEvent {
 public:
  explicit CudaEvent(unsigned flags = cudaEventDisableTiming) {
    MAGISTER_CHECK_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;
  void record(cudaStream_t stream) const { MAGISTER_CHECK_CUDA(cudaEventRecord(event_, stream)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace magister
