// CudaGraph: kernels that are queued once and then started together, with one launch instead of some hundred. On a host
// queue it is a list of the same kernels with the same arguments, so that the state of a graph is tested without a GPU,
// too.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "magister/device/launch.h"

namespace magister::gpu {

class CudaGraph {
 public:
  CudaGraph() = default;
  // Records the work that `queue_all` puts into the queue it is given; none of it runs. queue_all may start kernels and
  // call libraries (call_library()), nothing else. Memory that the work uses must stay allocated. The thread's device
  // must be that of `queue`; ATen's current stream is the recorded stream during the call.
  static CudaGraph capture(const Queue& queue, const std::function<void(const Queue&)>& queue_all) {
    return queue.on_host() ? CudaGraph(record_on_host([&] { queue_all(queue); })) : capture_on(queue, queue_all);
  }
  // Calls a library on the stream that capture() records, but really runs the work, and waits for it. State that a
  // library allocates at its first call on a stream, such as the workspace of cuBLAS, then exists before the capture. A
  // thread records all its graphs on one stream.
  static void call_before(const Queue& queue, const std::function<void()>& call) {
    queue.on_host() ? call() : call_before_on(queue.device, call);
  }
  ~CudaGraph() { destroy(); }
  CudaGraph(CudaGraph&& other) noexcept
      : executable_(std::exchange(other.executable_, nullptr)), on_host_(std::move(other.on_host_)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    std::swap(on_host_, other.on_host_);
    return *this;
  }
  // Starts the graph on the device's default stream; on the host the work is done on return.
  void launch() const {
    if (on_host_ == nullptr) return launch_on_device();
    for (const std::function<void()>& kernel : *on_host_) kernel();
  }

 private:
  explicit CudaGraph(HostKernels kernels) : on_host_(std::make_unique<HostKernels>(std::move(kernels))) {}
  static CudaGraph capture_on(const Queue& queue, const std::function<void(const Queue&)>& queue_all);
  static void call_before_on(int device, const std::function<void()>& call);
  void launch_on_device() const;
  void destroy() noexcept;

  void* executable_ = nullptr;  // cudaGraphExec_t
  std::unique_ptr<HostKernels> on_host_;
};

}  // namespace magister::gpu
