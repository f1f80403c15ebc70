// CudaGraph: kernels that were queued once and are started together from then on: one launch instead of some hundred.
#pragma once

#include <functional>
#include <utility>

#include "magister/device/launch.h"

namespace magister::gpu {

class CudaGraph {
 public:
  CudaGraph() = default;
  // Records what `queue_all` puts into the queue that it is given; nothing of it runs. It may start kernels and nothing else: memory
  // that it uses must stay. The thread's device is the queue's.
  static CudaGraph capture(int device, const std::function<void(const Queue&)>& queue_all);
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  bool is_captured() const { return executable_ != nullptr; }
  // Starts it in the device's default stream.
  void launch() const;

 private:
  void* executable_ = nullptr;  // cudaGraphExec_t
};

}  // namespace magister::gpu
