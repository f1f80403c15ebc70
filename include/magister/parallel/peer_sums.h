// PeerSums: sums over the shards of a group by kernels of their devices (src/parallel/gpu/peer_sum_kernel.h), which a
// CUDA graph can contain. f32, added in shard order: the bits equal those of a CPU group on every shard, whatever the
// number of rows. The devices must be on one host and must be able to access each other's memory: by address between
// shards of one process, by CUDA IPC handles between ranks. On a host queue the sums work between the threads of a
// process. A shard that leaves (its thread failed) releases those shards of its process that wait for it in a kernel;
// other ranks end with the job. Not yet run on GPUs.
#pragma once

#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister {

class ProcessGroup;

class PeerSums {
 public:
  // Creates the sums and tests them on numbers whose sum is known. Returns nullptr on every shard if they do not work
  // or if MAGISTER_PEER_SUMS=0; shard 0 logs the reason. Collective over the group.
  static std::shared_ptr<PeerSums> make(ProcessGroup& group, const gpu::Queue& queue);
  // Memory per device, for plans; 0: a group of this size has no such sums.
  static std::uint64_t memory_bytes(int shards);
  // Gives up queued sums that still wait. Local.
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  // Returns whether a sum of `count` numbers is made this way. For more numbers, sending every shard's numbers to every
  // other shard costs too much bandwidth.
  bool takes(std::int64_t count) const;
  // numbers: [count] on the queue's device, 16-byte aligned; replaced by the sum, or by NaN if a shard is missing. On a
  // GPU the sum is queued on return. On a host queue it is done, and a missing shard throws ShardAbandoned. All shards
  // must make the same sums in the same order.
  void queue_sum(float* numbers, std::int64_t count, const gpu::Queue& queue) const;
  // Throws ShardAbandoned if a sum was given up, as far as the device has computed. Local.
  void check() const;
  // close() waits for queued sums and releases the memory of other ranks. After all shards have called it, free()
  // allows this shard's memory to be freed.
  void close();
  void free();

 private:
  struct Shared;
  struct Peers;
  struct Making;
  PeerSums(std::shared_ptr<Shared> shared, const gpu::Queue& queue, int own, int shards, bool fast);
  void probe(ProcessGroup& group, std::byte* place);

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Peers> peers_;
};

}  // namespace magister
