// The plan of who gives what to whom when the ranks' gradients are added: by the aligned binary tree over the
// micro-batches, or in any order. It is the same for every bucket of a step; each rank makes its part by itself, from
// numbers that all ranks know.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

// Level and number: those of the micro-batches [number * 2^level, (number + 1) * 2^level) that exist.
using TreeNode = std::pair<int, std::uint64_t>;

// The tree, and the rank that has each of its nodes. Ranks hold consecutive ranges of micro-batches.
class SumTree {
 public:
  SumTree(std::uint64_t num_micro_batches, int num_ranks);

  int levels() const { return levels_; }  // level of the root
  int num_ranks() const { return num_ranks_; }
  IndexRange micro_batches_of(int rank) const;
  IndexRange covered(TreeNode node) const;
  // Owner of a node that covers something; -1: its micro-batches belong to several ranks.
  int owner_of(TreeNode node) const;
  // The largest nodes that belong to one rank, in the order of micro-batches.
  std::vector<TreeNode> nodes_of(int rank) const;

 private:
  std::uint64_t num_micro_batches_;
  int num_ranks_, levels_ = 0;
};

// A rank's sum of a piece. node: one of nodes_of(rank), whose tensor has the sum; arriving sums are added there.
struct SumHolder {
  int rank = -1;
  TreeNode node;
};

struct SumMeeting {
  int piece = 0;  // the rank that needs it in the end
  SumHolder kept, given;
};

struct SumSchedule {
  // The meetings that the rank takes part in, by round. All ranks have the same number of rounds, some of them empty.
  std::vector<std::vector<SumMeeting>> rounds;
  // By piece: who has the sum in the end; a rank without micro-batches still has to receive its own.
  std::vector<SumHolder> ends;
};

// Has the bits of one rank's sum. Where two ranks meet, each gives the other's pieces, both ways at once.
SumSchedule aligned_schedule(const SumTree& tree, int rank);
// Every rank has added up all of its own in the first of its nodes. Each piece is gathered in one round, rank after
// rank.
SumSchedule direct_schedule(const SumTree& tree, int rank);

}  // namespace magister
