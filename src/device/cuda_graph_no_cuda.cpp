// CUDA graphs in a build without CUDA: there is no device, so none is captured.
#include "magister/core/error.h"
#include "magister/device/cuda_graph.h"

namespace magister::gpu {

CudaGraph CudaGraph::capture_on(const Queue&, const std::function<void(const Queue&)>&) {
  fail(ExitCode::kInternal, "a CUDA graph in a build without CUDA (there is no device for it); report this");
}
void CudaGraph::call_before_on(int, const std::function<void()>&) {}
void CudaGraph::destroy() noexcept {}
void CudaGraph::launch_on_device() const {}

}  // namespace magister::gpu
