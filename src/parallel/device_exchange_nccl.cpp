// Messages by ncclSend and ncclRecv, in groups, on a stream with priority. See device_exchange.h.
#include "parallel/device_exchange_nccl.h"

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/check_cuda.cuh"
#include "parallel/communicator_nccl.h"
#include "parallel/cuda_event.h"

namespace magister {
namespace {

class NcclExchange final : public DeviceExchange {
 public:
  NcclExchange(const Communicator& members, const ncclUniqueId& id, int device) : device_(device) {
    select_device();
    // With priority: otherwise a message's few blocks would wait for the last block of a product.
    int least = 0, greatest = 0;
    MAGISTER_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MAGISTER_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    try {
      nccl_.emplace(NcclCommunicator::Place{members.rank(), members.size(), device_}, id, 0);
      connect(members.rank(), members.size());
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclExchange() override { release(); }
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  gpu::Queue queue() const override { return {device_, stream_}; }

  void follow_default() override {
    select_device();
    const CudaEvent ready;
    ready.record(nullptr);
    MAGISTER_CHECK_CUDA(cudaStreamWaitEvent(stream_, ready.get(), 0));
  }

  void pass(std::span<const DeviceMessage> messages) override {
    std::vector<Numbers> all;
    for (const DeviceMessage& message : messages) {
      check(message.numbers);
      all.push_back(
          {message.numbers.data_ptr(), static_cast<std::size_t>(message.numbers.numel()), message.peer, message.sends});
    }
    start(all);
  }

  std::uint64_t mark() override {
    select_device();
    Mark mark;
    mark.number = ++marks_;
    mark.event.record(stream_);
    pending_.push_back(std::move(mark));
    return marks_;
  }

  bool reached(std::uint64_t mark) override {
    while (!pending_.empty() && pending_.front().number <= mark) {
      const cudaError_t state = cudaEventQuery(pending_.front().event.get());
      if (state == cudaErrorNotReady) {
        cudaGetLastError();  // otherwise ATen finds it later and takes it for a failure
        return false;
      }
      if (state != cudaSuccess) nccl_->abort_and_fail("cudaEventQuery", cudaGetErrorString(state));
      pending_.pop_front();
    }
    return true;
  }

  void wait() override {
    const std::uint64_t last = mark();
    nccl_->wait_until([&] { return reached(last); });
  }

  void close() override {
    wait();
    nccl_->close();
  }

 private:
  struct Numbers {
    void* data;
    std::size_t count;
    int peer;
    bool sends;
  };
  struct Mark {
    std::uint64_t number = 0;
    CudaEvent event;
  };

  void select_device() const { MAGISTER_CHECK_CUDA(cudaSetDevice(device_)); }  // a setting of the thread

  void check(const at::Tensor& numbers) const {
    MAGISTER_CHECK(numbers.is_contiguous() && numbers.scalar_type() == at::kFloat && numbers.device().is_cuda() &&
                       numbers.device().index() == device_,
                   ExitCode::kInternal,
                   "a message of a {} tensor on {} (only contiguous f32 tensors on cuda:{} travel); report this",
                   c10::toString(numbers.scalar_type()), numbers.device().str(), device_);
  }

  void start(const std::vector<Numbers>& all) {
    if (all.empty()) return;
    select_device();
    nccl_->call("ncclSend and ncclRecv", [&](ncclComm_t comm) {
      ncclResult_t result = ncclGroupStart();
      for (const Numbers& one : all) {
        if (result != ncclSuccess) break;
        result = one.sends ? ncclSend(one.data, one.count, ncclFloat32, one.peer, comm, stream_)
                           : ncclRecv(one.data, one.count, ncclFloat32, one.peer, comm, stream_);
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
  }

  // NCCL connects two ranks at their first message, and the host waits for it: now, not in a pass.
  void connect(int me, int size) {
    MAGISTER_CHECK_CUDA(
        cudaMalloc(reinterpret_cast<void**>(&flags_), 2 * static_cast<std::size_t>(size) * sizeof(float)));
    std::vector<Numbers> all;
    for (int rank = 0; rank < size; ++rank) {
      if (rank == me) continue;
      all.push_back({flags_ + 2 * rank, 1, rank, true});
      all.push_back({flags_ + 2 * rank + 1, 1, rank, false});
    }
    start(all);
    wait();
  }

  // Local. NCCL's work in flight is given up first, since the stream waits for it.
  void release() noexcept {
    nccl_.reset();
    if (flags_ != nullptr) cudaFree(std::exchange(flags_, nullptr));
    if (stream_ != nullptr) cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  float* flags_ = nullptr;  // of the first messages
  std::optional<NcclCommunicator> nccl_;
  std::deque<Mark> pending_;
  std::uint64_t marks_ = 0;
};

}  // namespace

std::unique_ptr<DeviceExchange> make_nccl_exchange(const Communicator& members, int device, bool fast) {
  if (!fast) set_reproducible_defaults();
  const ncclUniqueId id = agreed_nccl_id(members, {device});
  return std::make_unique<NcclExchange>(members, id, device);
}

}  // namespace magister
