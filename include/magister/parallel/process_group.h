// ProcessGroup: the collectives that one GPU group runs on tensors. Three backends chosen by layout: `threads` (CPU
// shards inside a rank), `mpi` (CPU shards over ranks), `nccl` (GPUs). Same results for `threads` and `mpi`, bit for
// bit: both add the shards' contributions in shard order 0, 1, 2, ... (a tree over N would round differently for each
// N). T = any shape. All calls: Collective over the group; every shard passes the same shape and dtype.
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

// Thrown in shards that wait for one which has failed: its own error says why, so a caller that collects the errors of
// several shards prefers any other type to this one.
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
  // Where the tensors of the calls stand.
  virtual at::Device device() const { return at::kCPU; }
  // Waits for work on the GPU; a group that can fail meanwhile (nccl), or whose sums in kernels were given up, notices. Local.
  virtual void wait_for(const GpuEvent& event);

  // tensor (contiguous; f32, bf16, f16, i32, i64) becomes the sum over the shards, in place, replicated.
  // bf16 and f16 are added in fp32 and rounded once.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  // The same in two steps, so that the sum of one tensor travels while the device computes another: between them nobody touches the
  // tensor. Several may be in flight; they are finished in the order in which they were begun. CPU groups do all in the first step.
  virtual void begin_all_reduce_sum(at::Tensor& tensor) { all_reduce_sum(tensor); }
  virtual void finish_all_reduce_sum(at::Tensor&) {}
  // Of nccl: seconds that the device stood still for sums in two steps, as far as they are done. 0 elsewhere. Local.
  virtual double exposed_seconds() { return 0; }
  // [n, ...] on each shard -> [tp_size * n, ...], by tp_rank, replicated.
  virtual at::Tensor all_gather(const at::Tensor& shard) = 0;
  // [tp_size * n, ...] -> this shard's [n, ...] of the sum.
  virtual at::Tensor reduce_scatter(const at::Tensor& tensor) = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  // A number of the root's, from host to host: nccl sends it by MPI, so that nobody waits for the device.
  virtual std::int64_t broadcast_number(std::int64_t number, int root);
  // Every shard's numbers, equally many, by tp_rank, from host to host as well: while a shard of this process asks its device for memory no other
  // may have a sum waiting there (cudaMalloc and cudaFree wait for peers).
  virtual std::vector<std::vector<std::int64_t>> gather_numbers(const std::vector<std::int64_t>& mine);
  std::int64_t least_number(std::int64_t number);
  virtual void barrier() = 0;
  // Sums that are kernels of the devices themselves, so that a CUDA graph may hold them: made by the first call, for the queue of this shard's
  // device; nullptr on every shard where they do not work (peer_sums.h). Collective over the group.
  PeerSums* peer_sums(const gpu::Queue& queue);
  // Ends the group in order when its work is done; nothing is asked of it afterwards. Without it the destructor gives up what is under way,
  // which is right after a fault.
  virtual void close() {}

 protected:
  ProcessGroup(int tp_rank, int tp_size) : tp_rank_(tp_rank), tp_size_(tp_size) {}
  // Throws ShardAbandoned where a sum in a kernel was given up: the numbers behind it are none. Local.
  void check_peer_sums() const;
  std::shared_ptr<PeerSums> peer_sums_;  // null where there are none; a derived class may end them earlier than itself

 private:
  bool asked_for_peer_sums_ = false;
  int tp_rank_;
  int tp_size_;
};

// A group of one: every call returns at once.
std::unique_ptr<ProcessGroup> make_single_process_group();
// Of one on `device`: where there is nothing to add, a call is a copy to the host and back.
std::unique_ptr<ProcessGroup> make_single_process_group(at::Device device);

// CPU groups of this rank's shards: tp_rank = members.rank() * shards_per_rank + i. Collective over members (they talk
// through a duplicate of it). A group that is destroyed while others of its rank wait (its shard threw) releases them
// with ShardAbandoned; the other ranks end with the job.
std::vector<std::unique_ptr<ProcessGroup>> make_cpu_process_groups(const Communicator& members, int shards_per_rank);
// Shards of this rank alone; shard i is used by thread i.
std::vector<std::unique_ptr<ProcessGroup>> make_thread_process_groups(int num_shards);
// One shard a rank. Collective over members.
std::unique_ptr<ProcessGroup> make_mpi_process_group(const Communicator& members);

// A shard a device of this rank, sums on the host as in CPU groups: for several ranks on one GPU, in tests. Collective over members.
std::vector<std::unique_ptr<ProcessGroup>> make_staged_process_groups(const Communicator& members,
                                                                      const std::vector<int>& devices);

// A shard a GPU of this rank, which threads of their own use; members have equally many. The unique id travels over MPI. Calls are enqueued
// on the device's default stream, as ATen's are, and return at once; barrier() waits for them. A fault, or a peer that does not come for 10
// minutes (MAGISTER_NCCL_TIMEOUT_SECONDS), aborts the NCCL communicator and throws; a group that is destroyed without close() releases the
// others of its rank that wait with ShardAbandoned. bf16 and f16 sums travel as fp32. For a
// given machine the bits are reproducible: NCCL_ALGO=Ring, NCCL_PROTO=Simple, NCCL_NVLS_ENABLE=0 and 8 channels
// (NCCL_MIN_CTAS, NCCL_MAX_CTAS), each unless the environment says otherwise; `fast` leaves all that to NCCL, and
// narrow sums travel as they are: half the bytes, rounded at every GPU. Throws
// Error(kConfig) in a build without NCCL or without those devices. Collective over members.
std::vector<std::unique_ptr<ProcessGroup>> make_nccl_process_groups(const Communicator& members,
                                                                    const std::vector<int>& devices, bool fast = false);
// Of one GPU a rank.
std::unique_ptr<ProcessGroup> make_nccl_process_group(const Communicator& members, int device_index, bool fast = false);

}  // namespace magister
