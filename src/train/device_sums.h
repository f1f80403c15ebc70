// Adds the ranks' gradients on their devices, with the bits of the sum on the host: the same meetings in the same order
// (train/sum_schedule.h), bucket by bucket, each rank's part in one stream. A bucket's messages and additions are all
// queued at once, so the host does nothing for it afterwards, and what arrives takes the memory of one bucket.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "magister/parallel/device_exchange.h"
#include "magister/train/flat_shards.h"
#include "train/sum_schedule.h"

namespace magister {

// This rank's sums of a bucket, f32 on the device; a schedule's holders name them.
using BucketNodes = std::map<TreeNode, at::Tensor>;

// The numbers of a piece of a bucket, in the node that has them.
at::Tensor held(const BucketNodes& nodes, const SumHolder& holder, std::int64_t bucket, const FlatRange& piece);

class DeviceSums {
 public:
  // Exchange, shards and schedule are kept by reference. divided: a rank gets its part; otherwise every rank gets all.
  // Local.
  DeviceSums(DeviceExchange& exchange, const FlatShards& shards, const SumSchedule& schedule, int rank, bool divided);

  // Queues the whole sum of a bucket, after the work of the default stream. `nodes` is taken, and freed when the device
  // has read it. If there is no memory it throws before anything is queued or taken. Collective over the ranks, which
  // begin their buckets in the same order.
  void begin(std::int64_t bucket, BucketNodes& nodes);
  // Frees the nodes of buckets whose sums are done. Local.
  void release();
  // Waits for the sums of all buckets. Returns f32 [flat size], or this rank's part, on the device. Local.
  at::Tensor finish();

 private:
  struct Held {
    std::uint64_t mark;
    BucketNodes nodes;
  };
  void take_memory();
  void meet(std::int64_t bucket, const BucketNodes& nodes, std::span<const SumMeeting> round);
  void deliver(std::int64_t bucket, const BucketNodes& nodes);
  // In the stream of the messages: to += from, or to = from.
  void put(const at::Tensor& from, const at::Tensor& to, bool adds) const;

  DeviceExchange& exchange_;
  const FlatShards& shards_;
  const SumSchedule& schedule_;
  int rank_;
  bool divided_;
  at::Tensor out_, arrivals_;  // arrivals_: of one round, and then of the next
  at::Tensor not_finite_;      // written by the kernel; a step looks at its micro-batches instead
  std::deque<Held> held_;
};

// Every rank gives the others its pieces of `flat`, f32 on the device, of one bucket; queued after the work of the
// default stream. Collective over the ranks.
void gather_on_devices(DeviceExchange& exchange, const FlatShards& shards, int rank, std::int64_t bucket,
                       const at::Tensor& flat);

}  // namespace magister
