// A group for tests of tensor parallelism with fewer GPUs than shards: tensors are copied to the host, summed there by
// a CPU group in shard order, and copied back. NCCL before version 2.30.3 refuses two ranks on one GPU.
#include <ATen/ATen.h>

#include "magister/parallel/communicator.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace {

class StagedProcessGroup final : public ProcessGroup {
 public:
  StagedProcessGroup(std::unique_ptr<ProcessGroup> host, at::Device device)
      : ProcessGroup(host->tp_rank(), host->tp_size()), host_(std::move(host)), device_(device) {}

  std::string backend() const override { return host_->backend() + ", staged"; }
  at::Device device() const override { return device_; }

  void all_reduce_sum(at::Tensor& tensor) override {
    at::Tensor staged = tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    host_->all_reduce_sum(staged);
    tensor.copy_(staged);
  }
  at::Tensor all_gather(const at::Tensor& shard) override {
    return host_->all_gather(shard.cpu().contiguous()).to(device_);
  }
  at::Tensor reduce_scatter(const at::Tensor& tensor) override {
    return host_->reduce_scatter(tensor.cpu().contiguous()).to(device_);
  }
  void broadcast(at::Tensor& tensor, int root) override {
    at::Tensor staged = tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    host_->broadcast(staged, root);
    tensor.copy_(staged);
  }
  void barrier() override { host_->barrier(); }

 private:
  std::unique_ptr<ProcessGroup> host_;
  at::Device device_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_single_process_group(at::Device device) {
  return std::make_unique<StagedProcessGroup>(make_single_process_group(), device);
}

std::vector<std::unique_ptr<ProcessGroup>> make_staged_process_groups(const Communicator& members,
                                                                      const std::vector<int>& devices) {
  std::vector<std::unique_ptr<ProcessGroup>> groups =
      make_cpu_process_groups(members, static_cast<int>(devices.size()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i] = std::make_unique<StagedProcessGroup>(std::move(groups[i]),
                                                     at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(devices[i])));
  }
  return groups;
}

}  // namespace magister
