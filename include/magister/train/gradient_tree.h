// Sums the gradients of a step's micro-batches, bit for bit the same on any number of ranks and threads: by an aligned
// binary tree over the micro-batches' numbers (train/sum_schedule.h). A node is the sum of its two halves, whoever adds
// them and in whatever order they arrive, since a + b = b + a. Ranks hold consecutive ranges of micro-batches.
// The flat gradient is summed in buckets of 25 MiB, as in torch's DistributedDataParallel: as soon as a rank's last
// micro-batch has a bucket, the ranks exchange their sums of it while the backward pass goes on. Buckets go from the
// end of the flat tensor to its beginning, the order in which gradients arrive.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "magister/core/types.h"
#include "magister/parallel/communicator.h"
#include "magister/train/flat_shards.h"

namespace magister {

class DeviceExchange;
class DeviceSums;
class StagedCopies;

// The micro-batches of a rank.
IndexRange micro_batches_of(std::uint64_t num_micro_batches, int rank, int num_ranks);

struct GradientSumOptions {
  bool fast = false;     // each rank adds up its own, and the ranks' sums are added in any order instead of the tree's
  bool divided = false;  // a rank gets its FlatShards part over the ranks; otherwise every rank gets all
  // For a GPU: copies sums to the host, into memory that is kept from step to step; kept by reference.
  StagedCopies* copies = nullptr;
  bool from_device = false;  // with `copies`: micro-batches are added up on the device
  bool stays = false;        // one rank: finish() leaves the sum where the micro-batches are
  // For several ranks: their sums are added from device to device and stay there (train/device_sums.h). Only the thread
  // that made the tree adds micro-batches. Kept by reference.
  DeviceExchange* exchange = nullptr;
};

class GradientTree {
 public:
  // world is kept by reference. Nobody else may use it while this sum exists, because messages are under way on it.
  // Local.
  GradientTree(const Communicator& world, std::uint64_t num_micro_batches, std::int64_t flat_size,
               const GradientSumOptions& options = {});
  ~GradientTree();

  // Upper bound of the memory for data from other ranks, if there are several ranks. Local.
  static std::uint64_t arriving_bytes(std::int64_t flat_size);

  // One rank has one bucket.
  std::size_t num_buckets() const;
  FlatRange bucket(std::size_t index) const;

  // Returns, by bucket, what the other micro-batch of a pair has left, so that this one's gradient can be added to it
  // number by number; it then no longer belongs to the tree. Empty: it has not arrived yet, or it is another rank's.
  // Any thread. Local.
  std::vector<at::Tensor> take_other_half(std::uint64_t micro_batch);
  // Adds a bucket of a micro-batch of this rank, f32 [bucket(index).size()], on the same device for all buckets, each
  // once. Without an exchange, sums that go to other ranks, or to finish() unless they stay, are copied to the host:
  // with 2^n micro-batches per rank that is one gradient. The tensor then belongs to the tree, and is added to its
  // neighbours as far as they are this rank's. pair: it also contains what take_other_half() returned. Any thread.
  // Local.
  void add(std::uint64_t micro_batch, std::size_t bucket, at::Tensor values, bool pair = false);
  // Advances the sums between the ranks, if threads may do so (MPI_THREAD_MULTIPLE, or an exchange of devices) and no
  // other thread does. Any thread. Local.
  void move_on();
  // Returns the sum, f32 [flat size] or this rank's part of it, on the host unless it stays on the device. Call once,
  // after all micro-batches. Collective over world.
  at::Tensor finish();

 private:
  struct Bucket;
  struct Schedule;
  bool is_ready(const Bucket& bucket);
  bool move_all();
  bool move(Bucket& bucket);
  bool move_on_devices();
  at::Tensor on_host(at::Tensor values) const;
  void add_up_own(Bucket& bucket) const;
  void begin_round(Bucket& bucket);
  void deliver(Bucket& bucket);
  int tag_of(const Bucket& bucket) const;

  const Communicator& world_;
  GradientSumOptions options_;
  FlatShards shards_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<Bucket> buckets_;
  std::mutex mutex_;  // guards the buckets' nodes while micro-batches arrive
  // State of the exchange between the ranks: the buckets under way, oldest first, and how many have not begun.
  std::mutex moving_;
  std::deque<std::size_t> under_way_;
  std::size_t not_begun_;
  bool threads_may_move_;
  at::Tensor out_;
  std::unique_ptr<DeviceSums> devices_;
};

}  // namespace magister
