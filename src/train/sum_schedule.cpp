// See sum_schedule.h.
#include "train/sum_schedule.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

SumTree::SumTree(std::uint64_t num_micro_batches, int num_ranks)
    : num_micro_batches_(num_micro_batches), num_ranks_(num_ranks) {
  MAGISTER_ASSERT(num_micro_batches > 0 && num_ranks > 0);
  while ((std::uint64_t{1} << levels_) < num_micro_batches) ++levels_;
}

IndexRange SumTree::micro_batches_of(int rank) const {
  const auto r = static_cast<std::uint64_t>(rank), n = static_cast<std::uint64_t>(num_ranks_);
  return {num_micro_batches_ * r / n, num_micro_batches_ * (r + 1) / n};
}

IndexRange SumTree::covered(TreeNode node) const {
  const auto [level, number] = node;
  return {std::min(num_micro_batches_, number << level), std::min(num_micro_batches_, (number + 1) << level)};
}

int SumTree::owner_of(TreeNode node) const {
  const IndexRange range = covered(node);
  // The first rank whose micro-batches end after the node's first one.
  const std::uint64_t scaled = (range.begin + 1) * static_cast<std::uint64_t>(num_ranks_);
  const int rank = static_cast<int>((scaled + num_micro_batches_ - 1) / num_micro_batches_) - 1;
  return range.end <= micro_batches_of(rank).end ? rank : -1;
}

std::vector<TreeNode> SumTree::nodes_of(int rank) const {
  std::vector<TreeNode> nodes;
  const IndexRange own = micro_batches_of(rank);
  for (std::uint64_t begin = own.begin; begin < own.end; begin = covered(nodes.back()).end) {
    TreeNode node{0, begin};
    while (node.first < levels_ && owner_of({node.first + 1, node.second / 2}) == rank)
      node = {node.first + 1, node.second / 2};
    nodes.push_back(node);
  }
  return nodes;
}

namespace {

// Reports whether a piece is added up on the left side: that of its rank, if the rank has a micro-batch there.
// Otherwise pieces are spread by the bits of their numbers.
bool belongs_left(const SumTree& tree, int piece, TreeNode left, TreeNode right) {
  const IndexRange own = tree.micro_batches_of(piece);
  const auto meets = [&](const IndexRange& side) { return own.begin < side.end && side.begin < own.end; };
  if (meets(tree.covered(left)) || meets(tree.covered(right))) return meets(tree.covered(left));
  return ((piece >> (left.first % 30)) & 1) == 0;
}

// Returns, by piece, who has the node's sum.
std::vector<SumHolder> meet(const SumTree& tree, TreeNode node, int rank, SumSchedule& schedule) {
  if (const int owner = tree.owner_of(node); owner >= 0)
    return std::vector<SumHolder>(static_cast<std::size_t>(tree.num_ranks()), SumHolder{owner, node});
  const TreeNode left_node{node.first - 1, node.second * 2}, right_node{node.first - 1, node.second * 2 + 1};
  std::vector<SumHolder> left = meet(tree, left_node, rank, schedule);
  if (tree.covered(right_node).size() == 0) return left;
  std::vector<SumHolder> right = meet(tree, right_node, rank, schedule);
  for (int p = 0; p < tree.num_ranks(); ++p) {
    SumHolder &kept = left[static_cast<std::size_t>(p)], &given = right[static_cast<std::size_t>(p)];
    if (!belongs_left(tree, p, left_node, right_node)) std::swap(kept, given);
    if (kept.rank == rank || given.rank == rank)
      schedule.rounds[static_cast<std::size_t>(node.first - 1)].push_back({p, kept, given});
  }
  return left;
}

}  // namespace

SumSchedule aligned_schedule(const SumTree& tree, int rank) {
  SumSchedule schedule;
  schedule.rounds.resize(static_cast<std::size_t>(tree.levels()));
  schedule.ends = meet(tree, {tree.levels(), 0}, rank, schedule);
  return schedule;
}

SumSchedule direct_schedule(const SumTree& tree, int rank) {
  std::vector<SumHolder> holders;
  std::vector<int> place(static_cast<std::size_t>(tree.num_ranks()), -1);  // position in holders, by rank
  for (int r = 0; r < tree.num_ranks(); ++r) {
    if (tree.micro_batches_of(r).size() == 0) continue;
    place[static_cast<std::size_t>(r)] = static_cast<int>(holders.size());
    holders.push_back({r, tree.nodes_of(r).front()});
  }
  SumSchedule schedule;
  schedule.rounds.resize(1);
  for (int p = 0; p < tree.num_ranks(); ++p) {
    const int own = place[static_cast<std::size_t>(p)];
    const SumHolder& kept =
        own >= 0 ? holders[static_cast<std::size_t>(own)] : holders[static_cast<std::size_t>(p) % holders.size()];
    for (const SumHolder& given : holders) {
      if (given.rank != kept.rank && (kept.rank == rank || given.rank == rank))
        schedule.rounds[0].push_back({p, kept, given});
    }
    schedule.ends.push_back(kept);
  }
  return schedule;
}

}  // namespace magister
