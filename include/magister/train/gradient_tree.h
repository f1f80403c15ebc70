// The sum of the micro-batches' gradients of a step, bit for bit the same on any number of ranks and threads: an aligned binary tree over
// the micro-batches' numbers (train/sum_schedule.h). A node is the sum of its two halves, whoever adds them and in whatever order they come, since
// a + b = b + a. Ranks hold consecutive ranges of micro-batches.
// The flat gradient is summed in buckets of 25 MiB, as torch's DistributedDataParallel has them: as soon as a rank's last micro-batch has a bucket, the ranks' sums
// of it are under way, while the backward pass goes on. Buckets go from the flat tensor's end to its beginning, the order in which gradients come.
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

struct SumHolder;
class StagedCopies;

// The micro-batches of a rank.
IndexRange micro_batches_of(std::uint64_t num_micro_batches, int rank, int num_ranks);

struct GradientSumOptions {
  bool fast = false;     // each rank adds up its own, and the ranks' sums are added in any order, instead of the tree's
  bool divided = false;  // a rank gets its part of FlatShards over the ranks; otherwise every rank gets all
  // Of a GPU: what brings sums to the host, and has memory there that stays from step to step; kept by reference.
  StagedCopies* copies = nullptr;
  bool from_device = false;  // with `copies`: micro-batches are added up there
  bool stays = false;        // of one rank: finish() gives the sum where its micro-batches are
};

class GradientTree {
 public:
  // world is kept by reference and is this sum's alone as long as it lasts, for messages are under way on it. Local.
  GradientTree(const Communicator& world, std::uint64_t num_micro_batches, std::int64_t flat_size,
               const GradientSumOptions& options = {});
  ~GradientTree();

  // Memory for what other ranks send, at most, of several ranks. Local.
  static std::uint64_t arriving_bytes(std::int64_t flat_size);

  // Of one rank: one bucket.
  std::size_t num_buckets() const;
  FlatRange bucket(std::size_t index) const;

  // By bucket, what the other micro-batch of a pair has left, for this one's to be added to, number by number; it is no longer the tree's. Empty:
  // it is not there yet, or another rank's. Any thread. Local.
  std::vector<at::Tensor> take_other_half(std::uint64_t micro_batch);
  // A bucket of a micro-batch of this rank, f32 [bucket(index).size()], on one device for all of them, each once. What goes to other ranks, and to
  // finish() unless it stays, comes to the host, so from a device with 2^n micro-batches a rank one gradient does. The tensor becomes the tree's, and is added to its neighbours' as far as they
  // are this rank's. pair: it holds what take_other_half gave, too. Any thread. Local.
  void add(std::uint64_t micro_batch, std::size_t bucket, at::Tensor values, bool pair = false);
  // Moves on what is under way between the ranks, if threads may (MPI_THREAD_MULTIPLE) and no other one is at it. Any thread. Local.
  void move_on();
  // The sum, on the host unless it stays, f32 [flat size] or this rank's part of it, once, after all micro-batches. Collective over world.
  at::Tensor finish();

 private:
  struct Bucket;
  struct Schedule;
  bool is_ready(const Bucket& bucket);
  bool move_all();
  bool move(Bucket& bucket);
  at::Tensor on_host(at::Tensor values) const;
  void add_up_own(Bucket& bucket) const;
  void begin_round(Bucket& bucket);
  void deliver(Bucket& bucket);
  int tag_of(const Bucket& bucket) const;
  // The numbers of a piece in the tensor that has them.
  static at::Tensor held(const Bucket& bucket, const SumHolder& holder, const FlatRange& piece);

  const Communicator& world_;
  GradientSumOptions options_;
  FlatShards shards_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<Bucket> buckets_;
  std::mutex mutex_;  // of the buckets' nodes, while micro-batches come
  // Of what is between the ranks: the buckets under way, oldest first, and how many have not begun.
  std::mutex moving_;
  std::deque<std::size_t> under_way_;
  std::size_t not_begun_;
  bool threads_may_move_;
  at::Tensor out_;
};

}  // namespace magister
