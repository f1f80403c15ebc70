// Stream capture by the CUDA runtime. Source: CUDA C++ programming guide, "CUDA Graphs".
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>

#include <map>

#include "magister/core/error.h"
#include "magister/device/cuda_graph.h"

namespace magister::gpu {
namespace {

void check(cudaError_t code, const char* call) {
  MAGISTER_CHECK(code == cudaSuccess, ExitCode::kInternal,
                 "{} failed: {} (decoding is recorded as a CUDA graph); run again with "
                 "MAGISTER_CUDA_GRAPHS=0, or MAGISTER_EARLY_LAUNCH=0, and report this",
                 call, cudaGetErrorString(code));
}

// The stream of this thread's recordings; it is ATen's current stream during the lifetime of this object. The default
// stream cannot be captured. ATen accepts only streams of its own pool, so one of them is used for all recordings of a
// device.
class RecordingStream {
 public:
  explicit RecordingStream(int device) : before_(guard_.exchangeStream(stream_of(device))) {}
  ~RecordingStream() { guard_.exchangeStream(before_); }
  RecordingStream(const RecordingStream&) = delete;
  RecordingStream& operator=(const RecordingStream&) = delete;
  cudaStream_t get() const {
    return static_cast<cudaStream_t>(guard_.getStreamNativeHandle(guard_.getStream(before_.device())));
  }

 private:
  c10::Stream stream_of(int device) const {
    thread_local std::map<int, c10::Stream> streams;
    const auto known = streams.find(device);
    if (known != streams.end()) return known->second;
    const c10::Device on(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    return streams.emplace(device, guard_.getStreamFromGlobalPool(on)).first->second;
  }

  c10::impl::VirtualGuardImpl guard_{c10::DeviceType::CUDA};
  c10::Stream before_;
};

}  // namespace

CudaGraph CudaGraph::capture_on(const Queue& queue, const std::function<void(const Queue&)>& queue_all) {
  const RecordingStream stream(queue.device);
  Queue recorded_queue = queue;
  recorded_queue.stream = stream.get();
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    queue_all(recorded_queue);
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &recorded);
    cudaGetLastError();  // otherwise ATen finds the error after its next kernel
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

void CudaGraph::call_before_on(int device, const std::function<void()>& call) {
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // data that the call reads must be complete
  const RecordingStream stream(device);
  call();
  check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

void CudaGraph::destroy() noexcept {
  if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

void CudaGraph::launch_on_device() const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), nullptr), "cudaGraphLaunch");
}

}  // namespace magister::gpu
