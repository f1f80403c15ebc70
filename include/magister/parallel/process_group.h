// ProcessGroup: the collectives of one GPU group on tensors. The layout chooses one of three backends: `threads` (CPU
// shards inside a rank), `mpi` (CPU shards over ranks), `nccl` (GPUs). `threads` and `mpi` give the same results bit
// for bit: both add the shards' contributions in shard order 0, 1, 2, ... (a tree over N shards would round differently
// for each N). Tensors may have any shape. All calls: Collective over the group; every shard passes the same shape and
// dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/core/error.h"

namespace magister {

namespace gpu {
struct Queue;
}
class Communicator;
class GpuEvent;
class PeerSums;

// Thrown in shards that wait for a shard that has failed. The error of the failed shard has the reason, so a caller
// that collects the errors of several shards prefers any other type to this one.
class ShardAbandoned : public Error {
 public:
  ShardAbandoned();
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;  // never collective

  int tp_rank() const { return tp_rank_; }
  int tp_size() const { return tp_size_; }
  virtual std::string backend() const = 0;
  // The device of the tensors.
  virtual at::Device device() const { return at::kCPU; }
  // Waits for work on the GPU, and notices meanwhile a failure of the group (nccl) or of sums in kernels. Local.
  virtual void wait_for(const GpuEvent& event);

  // tensor (contiguous; f32, f64, bf16, f16, i32, i64) becomes the sum over the shards, in place, replicated. bf16 and
  // f16 are added in fp32 and rounded once.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  // The same in two steps, so that one tensor is summed while the device computes another. The tensor must not be used
  // between the two steps. Several sums may be in flight; they must be finished in the order in which they were begun.
  // CPU groups do all the work in the first step.
  virtual void begin_all_reduce_sum(at::Tensor& tensor) { all_reduce_sum(tensor); }
  virtual void finish_all_reduce_sum(at::Tensor&) {}
  // True if the bits of a sum depend neither on its place in the tensor nor on the tensor's size. Local.
  virtual bool sums_are_their_own() const { return true; }
  // For nccl: seconds that the device waited for sums in two steps, as far as they are done. 0 for other backends.
  // Local.
  virtual double exposed_seconds() { return 0; }
  // [n, ...] on each shard -> [tp_size * n, ...], by tp_rank, replicated.
  virtual at::Tensor all_gather(const at::Tensor& shard) = 0;
  // [tp_size * n, ...] -> this shard's [n, ...] of the sum.
  virtual at::Tensor reduce_scatter(const at::Tensor& tensor) = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  // Sends a number of the root from host to host: nccl groups use MPI for it, so no shard waits for a device.
  virtual std::int64_t broadcast_number(std::int64_t number, int root);
  // Gathers equally many numbers of every shard, by tp_rank, also from host to host. While a shard of this process
  // allocates device memory, no other shard may have a sum waiting on its device (cudaMalloc and cudaFree wait for
  // peers).
  virtual std::vector<std::vector<std::int64_t>> gather_numbers(const std::vector<std::int64_t>& mine);
  std::int64_t least_number(std::int64_t number);
  virtual void barrier() = 0;
  // Sums that are kernels of the devices, so that a CUDA graph can contain them. The first call makes them for the
  // queue of this shard's device. nullptr on every shard if they do not work (peer_sums.h). Collective over the group.
  PeerSums* peer_sums(const gpu::Queue& queue);
  // Ends the group in order when its work is done; the group must not be used afterwards. Without close() the
  // destructor gives up work in flight, which is right after a failure.
  virtual void close() {}

 protected:
  ProcessGroup(int tp_rank, int tp_size) : tp_rank_(tp_rank), tp_size_(tp_size) {}
  // Throws ShardAbandoned if a sum in a kernel was given up, because the numbers after it are invalid. Local.
  void check_peer_sums() const;
  std::shared_ptr<PeerSums> peer_sums_;  // null if there are none; a derived class may end them before its own end

 private:
  bool asked_for_peer_sums_ = false;
  int tp_rank_;
  int tp_size_;
};

// A group of one shard: every call returns at once.
std::unique_ptr<ProcessGroup> make_single_process_group();
// A group of one shard on `device`: a call copies the tensor to the host and back.
std::unique_ptr<ProcessGroup> make_single_process_group(at::Device device);

// CPU groups of this rank's shards: tp_rank = members.rank() * shards_per_rank + i. Collective over members (the groups
// use a duplicate of it). If a group is destroyed while other shards of its rank wait (its shard threw), those throw
// ShardAbandoned; other ranks end with the job.
std::vector<std::unique_ptr<ProcessGroup>> make_cpu_process_groups(const Communicator& members, int shards_per_rank);
// All shards are on this rank; shard i is used by thread i.
std::vector<std::unique_ptr<ProcessGroup>> make_thread_process_groups(int num_shards);
// One shard per rank. Collective over members.
std::unique_ptr<ProcessGroup> make_mpi_process_group(const Communicator& members);

// One shard per device of this rank, with sums on the host as in CPU groups: for several ranks on one GPU, in tests.
// Collective over members.
std::vector<std::unique_ptr<ProcessGroup>> make_staged_process_groups(const Communicator& members,
                                                                      const std::vector<int>& devices);

// One shard per GPU of this rank, each used by a thread of its own; all members have equally many. The unique id is
// sent by MPI. Calls are queued on the device's default stream, as ATen's are, and return at once; barrier() waits for
// them.
// A failure, or a peer that does not answer for 10 minutes (MAGISTER_NCCL_TIMEOUT_SECONDS), aborts the NCCL
// communicator and throws. If a group is destroyed without close(), waiting shards of its rank throw ShardAbandoned.
// Sums of bf16 and f16 are made in fp32. On a given machine the bits are reproducible: NCCL_ALGO=Ring,
// NCCL_PROTO=Simple, NCCL_NVLS_ENABLE=0 and 8 channels (NCCL_MIN_CTAS, NCCL_MAX_CTAS), each unless the environment sets
// it. With `fast` NCCL chooses all of this, and bf16 and f16 are summed as they are: half the bytes, rounded at every
// GPU. Throws Error(kConfig) in a build without NCCL or if a device is missing. Collective over members.
std::vector<std::unique_ptr<ProcessGroup>> make_nccl_process_groups(const Communicator& members,
                                                                    const std::vector<int>& devices, bool fast = false);
// One GPU per rank.
std::unique_ptr<ProcessGroup> make_nccl_process_group(const Communicator& members, int device_index, bool fast = false);

}  // namespace magister
