// Stream capture by the CUDA runtime. Source: CUDA C++ programming guide, "CUDA Graphs".
#include <cuda_runtime_api.h>

#include "magister/core/error.h"
#include "magister/device/cuda_graph.h"

namespace magister::gpu {
namespace {

void check(cudaError_t code, const char* call) {
  MAGISTER_CHECK(code == cudaSuccess, ExitCode::kInternal,
                 "{} failed: {} (decoding is recorded as a CUDA graph); run again with "
                 "MAGISTER_CUDA_GRAPHS=0 and report this",
                 call, cudaGetErrorString(code));
}

// A stream of its own for the recording; the default stream cannot be captured.
class CaptureStream {
 public:
  CaptureStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~CaptureStream() { cudaStreamDestroy(stream_); }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

CudaGraph CudaGraph::capture_on(int device, const std::function<void(const Queue&)>& queue_all) {
  const CaptureStream stream;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    queue_all(Queue{device, stream.get()});
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &recorded);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&executable, recorded, 0);
  cudaGraphDestroy(recorded);
  check(code, "cudaGraphInstantiate");
  CudaGraph graph;
  graph.executable_ = executable;
  return graph;
}

void CudaGraph::destroy() noexcept {
  if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

void CudaGraph::launch_on_device() const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), nullptr), "cudaGraphLaunch");
}

}  // namespace magister::gpu
