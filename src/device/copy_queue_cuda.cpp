// Copies by cudaMemcpyAsync into memory of cudaHostAlloc. See copy_queue.h. ATen's allocator of pinned memory would
// round each size up to a power of two, and keep what was freed.
#include "device/copy_queue_cuda.h"

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "magister/core/error.h"
#include "magister/device/check_cuda.cuh"

namespace magister {
namespace {

class CudaCopyQueue final : public CopyQueue {
 public:
  // Not a blocking stream: the default stream would wait for each of its copies.
  explicit CudaCopyQueue(int device) : device_(device) {
    select_device();
    try {
      MAGISTER_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
      MAGISTER_CHECK_CUDA(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming));
      // A thread that waits for it sleeps.
      MAGISTER_CHECK_CUDA(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming | cudaEventBlockingSync));
    } catch (...) {
      release();
      throw;
    }
  }
  ~CudaCopyQueue() override { release(); }
  CudaCopyQueue(const CudaCopyQueue&) = delete;
  CudaCopyQueue& operator=(const CudaCopyQueue&) = delete;

  at::Tensor take(std::int64_t size) override {
    if (size == 0) return at::empty({0}, at::kFloat);
    select_device();
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, static_cast<std::size_t>(size) * sizeof(float), cudaHostAllocDefault) != cudaSuccess) {
      cudaGetLastError();  // otherwise ATen finds it later and takes it for a failure
      return {};
    }
    return at::from_blob(memory, {size}, [](void* mine) { cudaFreeHost(mine); }, at::kFloat);
  }

  void start(std::span<const Copy> copies) override {
    select_device();
    MAGISTER_CHECK_CUDA(cudaEventRecord(begin_, nullptr));
    MAGISTER_CHECK_CUDA(cudaStreamWaitEvent(stream_, begin_, 0));
    for (const Copy& copy : copies) {
      MAGISTER_ASSERT(copy.from.is_contiguous() && copy.to.is_contiguous() && copy.from.nbytes() == copy.to.nbytes());
      MAGISTER_CHECK_CUDA(cudaMemcpyAsync(copy.to.data_ptr(), copy.from.const_data_ptr(), copy.from.nbytes(),
                                          cudaMemcpyDeviceToHost, stream_));
    }
    MAGISTER_CHECK_CUDA(cudaEventRecord(done_, stream_));
  }

  void hold_default() override {
    select_device();
    MAGISTER_CHECK_CUDA(cudaStreamWaitEvent(nullptr, done_, 0));
  }
  void wait() override {
    select_device();  // else a thread that has chosen none may begin a context on the first GPU
    MAGISTER_CHECK_CUDA(cudaEventSynchronize(done_));
  }

 private:
  void select_device() const { MAGISTER_CHECK_CUDA(cudaSetDevice(device_)); }  // a setting of the thread

  void release() noexcept {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    if (begin_ != nullptr) cudaEventDestroy(std::exchange(begin_, nullptr));
    if (done_ != nullptr) cudaEventDestroy(std::exchange(done_, nullptr));
    if (stream_ != nullptr) cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, done_ = nullptr;  // done_ from the start, then with the last copy
};

}  // namespace

std::unique_ptr<CopyQueue> make_cuda_copy_queue(int device) { return std::make_unique<CudaCopyQueue>(device); }

}  // namespace magister
