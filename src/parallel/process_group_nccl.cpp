// The GPU group: a thread and a NCCL communicator for every GPU of the rank. A failure or a missing peer ends in
// ncclCommAbort and an exception instead of a hang (communicator_nccl.h). Source: NCCL 2.28 user guide ("Fault
// Tolerance", "Environment").
#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <deque>
#include <optional>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/check_cuda.cuh"
#include "magister/device/gpu.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/peer_sums.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/side_by_side.h"
#include "parallel/communicator_nccl.h"
#include "parallel/cuda_event.h"

namespace magister {
namespace {

// A ring with a fixed number of channels adds in the same order for equal messages on the same machine; 8 channels use
// most of NVLink's bandwidth.
constexpr int kChannels = 8;

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    default:
      fail(ExitCode::kInternal,
           "a {} tensor in a GPU group (only f32, f64, bf16, f16, i32 and i64 travel); report this",
           c10::toString(tensor.scalar_type()));
  }
}

bool is_narrow(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

class NcclProcessGroup final : public ProcessGroup {
 public:
  // host: the group of the same shards on the CPUs. fault: shared by all GPUs of this rank. Collective over the group,
  // each shard on a thread of its own.
  NcclProcessGroup(std::unique_ptr<ProcessGroup> host, const ncclUniqueId& id, int device, bool fast,
                   std::shared_ptr<std::atomic<bool>> fault)
      : ProcessGroup(host->tp_rank(), host->tp_size()),
        host_(std::move(host)),
        device_(device),
        fast_(fast),
        fault_(std::move(fault)) {
    MAGISTER_CHECK_CUDA(cudaSetDevice(device_));
    MAGISTER_CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&flag_), sizeof(float)));
    try {
      MAGISTER_CHECK_CUDA(cudaMemset(flag_, 0, sizeof(float)));
      nccl_.emplace(NcclCommunicator::Place{tp_rank(), tp_size(), device_}, id, fast ? 0 : kChannels);
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclProcessGroup() override {
    if (!closed_) *fault_ = true;
    peer_sums_.reset();  // its kernels must end before anything waits for the device
    release();
  }
  NcclProcessGroup(const NcclProcessGroup&) = delete;
  NcclProcessGroup& operator=(const NcclProcessGroup&) = delete;

  std::string backend() const override { return fast_ ? "nccl, fast" : "nccl"; }
  // A ring begins the sums of each part of a tensor at another GPU. Two numbers have one sum.
  bool sums_are_their_own() const override { return tp_size() <= 2; }
  at::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }

  void wait_for(const GpuEvent& event) override {
    nccl_->wait_until([&] {
      leave_with_the_others();
      return event.done();
    });
    check_peer_sums();
  }

  void all_reduce_sum(at::Tensor& tensor) override {
    check(tensor, "all_reduce_sum");
    if (is_narrow(tensor) && !fast_) {
      at::Tensor wide = tensor.to(at::kFloat);
      all_reduce_sum(wide);
      tensor.copy_(wide);
      return;
    }
    void* data = tensor.data_ptr();
    nccl_->call("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(data, data, count_of(tensor), type_of(tensor), ncclSum, comm, kStream);
    });
  }

  // Sums on a stream of its own, after the work that is queued so far. The default stream waits for it in
  // finish_all_reduce_sum().
  void begin_all_reduce_sum(at::Tensor& tensor) override {
    check(tensor, "begin_all_reduce_sum");
    if (sums_stream_ == nullptr) make_sums_stream();
    PendingSum sum;
    sum.tensor = is_narrow(tensor) && !fast_ ? tensor.to(at::kFloat) : tensor;
    const CudaEvent ready;
    ready.record(kStream);
    MAGISTER_CHECK_CUDA(cudaStreamWaitEvent(sums_stream_, ready.get(), 0));
    void* data = sum.tensor.data_ptr();
    nccl_->call("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(data, data, count_of(sum.tensor), type_of(sum.tensor), ncclSum, comm, sums_stream_);
    });
    sum.done.record(sums_stream_);
    pending_.push_back(std::move(sum));
  }

  void finish_all_reduce_sum(at::Tensor& tensor) override {
    MAGISTER_CHECK(!pending_.empty(), ExitCode::kInternal,
                   "a sum over the shards is finished that was not begun; report this");
    const PendingSum sum = std::move(pending_.front());
    pending_.pop_front();
    Wait wait;
    wait.begin.record(kStream);
    MAGISTER_CHECK_CUDA(cudaStreamWaitEvent(kStream, sum.done.get(), 0));
    wait.end.record(kStream);
    waits_.push_back(std::move(wait));
    if (waits_.size() > kMostWaits) collect_waits();
    if (!sum.tensor.is_same(tensor)) tensor.copy_(sum.tensor);
  }

  std::int64_t broadcast_number(std::int64_t number, int root) override {
    return host_->broadcast_number(number, root);
  }
  std::vector<std::vector<std::int64_t>> gather_numbers(const std::vector<std::int64_t>& mine) override {
    return host_->gather_numbers(mine);
  }

  double exposed_seconds() override {
    select_device();
    collect_waits();
    return exposed_seconds_;
  }

  at::Tensor all_gather(const at::Tensor& shard) override {
    const at::Tensor part = shard.contiguous();
    check(part, "all_gather");
    MAGISTER_CHECK(part.dim() > 0, ExitCode::kInternal,
                   "all_gather of a scalar (it has no rows to put together); report this");
    auto shape = part.sizes().vec();
    shape[0] *= tp_size();
    at::Tensor out = at::empty(shape, part.options());
    nccl_->call("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(part.const_data_ptr(), out.data_ptr(), count_of(part), type_of(part), comm, kStream);
    });
    return out;
  }

  at::Tensor reduce_scatter(const at::Tensor& tensor) override {
    if (is_narrow(tensor) && !fast_) return reduce_scatter(tensor.to(at::kFloat)).to(tensor.scalar_type());
    const at::Tensor whole = tensor.contiguous();
    check(whole, "reduce_scatter");
    MAGISTER_CHECK(whole.dim() > 0 && whole.size(0) % tp_size() == 0, ExitCode::kInternal,
                   "reduce_scatter of {} rows over {} shards (they do not divide); report this",
                   whole.dim() > 0 ? whole.size(0) : 0, tp_size());
    auto shape = whole.sizes().vec();
    shape[0] /= tp_size();
    at::Tensor out = at::empty(shape, whole.options());
    nccl_->call("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(whole.const_data_ptr(), out.data_ptr(), count_of(out), type_of(out), ncclSum, comm,
                               kStream);
    });
    return out;
  }

  void broadcast(at::Tensor& tensor, int root) override {
    check(tensor, "broadcast");
    MAGISTER_CHECK(root >= 0 && root < tp_size(), ExitCode::kInternal,
                   "broadcast from shard {} of {} (there is none); report this", root, tp_size());
    void* data = tensor.data_ptr();
    nccl_->call("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(data, data, count_of(tensor), type_of(tensor), root, comm, kStream);
    });
  }

  void barrier() override {
    select_device();
    nccl_->call("ncclAllReduce (barrier)",
                [&](ncclComm_t comm) { return ncclAllReduce(flag_, flag_, 1, ncclFloat32, ncclSum, comm, kStream); });
    nccl_->wait_until([&] {
      leave_with_the_others();
      const cudaError_t state = cudaStreamQuery(kStream);
      if (state == cudaErrorNotReady) cudaGetLastError();  // otherwise ATen finds it later and takes it for a failure
      if (state != cudaSuccess && state != cudaErrorNotReady)
        nccl_->abort_and_fail("cudaStreamQuery", cudaGetErrorString(state));
      return state == cudaSuccess;
    });
    check_peer_sums();
  }

  void close() override {
    select_device();
    close_peer_sums();
    nccl_->close();
    closed_ = true;
  }

 private:
  // The device's legacy default stream, which ATen also uses, so no event is needed between the two.
  static constexpr cudaStream_t kStream = nullptr;

  static std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

  // Other ranks must close this rank's memory before it is freed.
  void close_peer_sums() {
    if (peer_sums_ == nullptr) return;
    try {
      peer_sums_->close();
      barrier();
      peer_sums_->free();
    } catch (const std::exception& error) {
      log_warning("the memory for sums of cuda:{} is left to the driver (the work of its group is done): {}", device_,
                  error.what());
    }
    peer_sums_.reset();
  }

  // A sum with a GPU of this rank whose thread has failed never ends; NCCL would report it only after its time limit.
  void leave_with_the_others() const {
    if (*fault_) throw ShardAbandoned();
  }

  void select_device() const { MAGISTER_CHECK_CUDA(cudaSetDevice(device_)); }  // a setting of the thread

  void check(const at::Tensor& tensor, const char* operation) const {
    MAGISTER_CHECK(tensor.is_contiguous() && tensor.device().is_cuda() && tensor.device().index() == device_,
                   ExitCode::kInternal,
                   "{} of a tensor on {} that is{} contiguous (this group takes contiguous tensors on cuda:{}); "
                   "report this",
                   operation, tensor.device().str(), tensor.is_contiguous() ? "" : " not", device_);
    select_device();
  }

  // The stream has priority over the default stream: otherwise the few blocks of a sum would wait for the last block of
  // a product, and would not overlap with it.
  void make_sums_stream() {
    int least = 0, greatest = 0;
    MAGISTER_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MAGISTER_CHECK_CUDA(cudaStreamCreateWithPriority(&sums_stream_, cudaStreamNonBlocking, greatest));
  }

  // Events around the time that the default stream waited for a sum.
  struct Wait {
    CudaEvent begin{cudaEventDefault}, end{cudaEventDefault};
  };
  static constexpr std::size_t kMostWaits = 4096;  // events that are kept before the finished ones are added up

  void collect_waits() {
    while (!waits_.empty()) {
      const cudaError_t state = cudaEventQuery(waits_.front().end.get());
      if (state == cudaErrorNotReady) cudaGetLastError();
      if (state != cudaSuccess) return;
      float milliseconds = 0;
      MAGISTER_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, waits_.front().begin.get(), waits_.front().end.get()));
      exposed_seconds_ += 1e-3 * milliseconds;
      waits_.pop_front();
    }
  }

  // A sum in flight; the tensor is held until the default stream waits for the sum.
  struct PendingSum {
    at::Tensor tensor;
    CudaEvent done;
  };

  // Local. Callers that need results have waited for them before (barrier(), or a copy to the host).
  void release() noexcept {
    nccl_.reset();
    if (flag_ != nullptr) cudaFree(std::exchange(flag_, nullptr));
    if (sums_stream_ != nullptr) cudaStreamDestroy(std::exchange(sums_stream_, nullptr));
  }

  std::unique_ptr<ProcessGroup> host_;
  int device_;
  bool fast_, closed_ = false;
  std::shared_ptr<std::atomic<bool>> fault_;
  std::optional<NcclCommunicator> nccl_;
  float* flag_ = nullptr;
  cudaStream_t sums_stream_ = nullptr;  // created when the first sum in two steps begins
  std::deque<PendingSum> pending_;
  std::deque<Wait> waits_;
  double exposed_seconds_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_nccl_process_groups(const Communicator& members,
                                                                    const std::vector<int>& devices, bool fast) {
  if (!fast) set_reproducible_defaults();
  const ncclUniqueId id = agreed_nccl_id(members, devices);
  std::vector<std::unique_ptr<ProcessGroup>> hosts = make_cpu_process_groups(members, static_cast<int>(devices.size()));
  const auto fault = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<ProcessGroup>> groups(devices.size());
  // Creating a communicator waits for those of all its shards, so each is created on a thread of its own.
  run_side_by_side(devices.size(), [&](std::size_t i) {
    groups[i] = std::make_unique<NcclProcessGroup>(std::move(hosts[i]), id, devices[i], fast, fault);
  });
  return groups;
}

std::unique_ptr<ProcessGroup> make_nccl_process_group(const Communicator& members, int device_index, bool fast) {
  return std::move(make_nccl_process_groups(members, {device_index}, fast).front());
}

}  // namespace magister
