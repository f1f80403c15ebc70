// PeerSums: sums over the shards of a group as kernels of their devices (src/parallel/gpu/peer_sum_kernel.h), which a CUDA graph may hold. f32, added in
// shard order: the bits of a CPU group, on every shard, whatever the number of rows. They need devices of one host that reach each other's
// memory: shards that are threads of a process by its own addresses, those of other ranks by CUDA's handles between processes. On a host queue
// they work between the threads of a process. A shard that leaves (its thread failed) releases those of its process that wait for it in a kernel;
// other ranks end with the job. Not run on GPUs yet.
#pragma once

#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister {

class ProcessGroup;

class PeerSums {
 public:
  // Tries them on numbers whose sum is known. nullptr, on every shard, where they do not work or MAGISTER_PEER_SUMS=0; shard 0 logs why.
  // Collective over the group.
  static std::shared_ptr<PeerSums> make(ProcessGroup& group, const gpu::Queue& queue);
  // Of a shard's device, for plans; 0: a group of so many has none.
  static std::uint64_t memory_bytes(int shards);
  // What is queued and still waits is given up. Local.
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  // Whether a sum of so many numbers goes this way; beyond, every shard's numbers to every other are too much for the wires.
  bool takes(std::int64_t count) const;
  // numbers: on the queue's device, 16-byte aligned, [count]; becomes the sum, or NaN where a shard did not come. Queued when it returns, on a host
  // queue done, and then it throws ShardAbandoned instead. The same sums in the same order on every shard.
  void queue_sum(float* numbers, std::int64_t count, const gpu::Queue& queue) const;
  // Throws ShardAbandoned where a sum was given up, as far as the device has come. Local.
  void check() const;
  // Lets go of the other ranks' memory, when all that was queued is done. When all shards have come back from it, own memory may be freed: free().
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
