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
  // The sum over all ranks, on every rank, in buckets of 25 MiB, each in as many pieces as there are ranks (a power of two): where two ranks
  // meet, each sends the one half of its pieces and adds up the other, both ways at once; then the pieces are gathered. Once. Collective over world.
  at::Tensor sum(std::int64_t flat_size);

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
  std::vector<Part> reduce(Node node, std::int64_t begin, std::int64_t count);

  const Communicator& world_;
  std::uint64_t num_micro_batches_;
  bool fast_;
  int levels_ = 0;           // of the root
  std::int64_t pieces_ = 1;  // of a bucket
  std::mutex mutex_;
  std::map<Node, at::Tensor> nodes_;
};

}  // namespace magister
