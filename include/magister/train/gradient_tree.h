// The sum of the micro-batches' gradients of a step, bit for bit the same on any number of ranks and threads: an aligned binary tree over
// the micro-batches' numbers. Node (level, i) covers the micro-batches [i * 2^level, (i + 1) * 2^level) that there are; it is the sum of
// its two halves, whoever adds them and in whatever order they come, since a + b = b + a. Ranks hold consecutive ranges of micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "magister/core/types.h"
#include "magister/parallel/communicator.h"
#include "magister/train/flat_shards.h"

namespace magister {

// The micro-batches of a rank.
IndexRange micro_batches_of(std::uint64_t num_micro_batches, int rank, int num_ranks);

class GradientTree {
 public:
  // world is kept by reference. fast: the ranks' sums are added by MPI_Allreduce, in its order, instead of the tree's.
  GradientTree(const Communicator& world, std::uint64_t num_micro_batches, bool fast = false);

  // What the other micro-batch of a pair has left, for this one's to be added to, number by number; it is no longer the tree's. Undefined:
  // it is not there yet, or another rank's. Any thread. Local.
  at::Tensor take_other_half(std::uint64_t micro_batch);
  // A micro-batch of this rank. The tensor becomes the tree's, and is added to its neighbours' as far as they are this rank's. pair: it holds
  // what take_other_half gave, too. Any thread. Local.
  void add(std::uint64_t micro_batch, at::Tensor flat_gradient, bool pair = false);
  // One of the two below, once. Buckets of 25 MiB, each in a piece a rank (FlatShards): where two ranks meet, each sends the other's pieces
  // and adds up its own, both ways at once, until every rank has the sum of its piece.
  // The sum over all ranks, on every rank: the pieces are gathered. Collective over world.
  at::Tensor sum(std::int64_t flat_size);
  // This rank's part of it alone; nothing is gathered, and no second flat tensor is made. shards: over world. Collective over world.
  at::Tensor part_of_sum(const FlatShards& shards);

 private:
  using Node = std::pair<int, std::uint64_t>;  // level, number
  struct Part {
    int owner = 0;
    at::Tensor values;  // of a piece of a bucket, on its owner
  };
  IndexRange covered(Node node) const;
  int owner_of(Node node) const;  // -1: its micro-batches are several ranks'
  at::Tensor fast_sum(std::int64_t flat_size);
  // By piece.
  std::vector<Part> reduce(Node node, const FlatShards& shards, std::int64_t bucket);
  // On which of the two sides a piece is added up: its rank's, where that has a micro-batch there.
  bool belongs_left(int piece, Node left, Node right) const;
  void own_piece(const FlatShards& shards, std::int64_t bucket, float* out);

  const Communicator& world_;
  std::uint64_t num_micro_batches_;
  bool fast_;
  int levels_ = 0;  // of the root
  std::mutex mutex_;
  std::map<Node, at::Tensor> nodes_;
};

}  // namespace magister
