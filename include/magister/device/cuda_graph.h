// CudaGraph: kernels that were queued once and are started together from then on: one launch instead of some hundred. On a host queue a
// list of the same kernels with the same arguments, so that what a graph remembers is tested without a GPU, too.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "magister/device/launch.h"

namespace magister::gpu {

class CudaGraph {
 public:
  CudaGraph() = default;
  // Records what `queue_all` puts into the queue that it is given; nothing of it runs. It may start kernels and call libraries (call_library())
  // and nothing else: memory that it uses must stay. The thread's device is that of `queue`, and ATen's stream meanwhile the recorded one.
  static CudaGraph capture(const Queue& queue, const std::function<void(const Queue&)>& queue_all) {
    return queue.on_host() ? CudaGraph(record_on_host([&] { queue_all(queue); })) : capture_on(queue, queue_all);
  }
  // Calls a library as capture() does, but for good, and waits for it: what it makes at its first call for a stream and keeps, as cuBLAS does its
  // work place, is there then. A thread records all its graphs on one stream.
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
  // Starts it in the device's default stream; on the host it is done when this returns.
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
