// See gradient_tree.h. Every rank walks the same tree in the same order, so that a send always meets its receive.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"

namespace magister {
namespace {

constexpr std::int64_t kBucket = (25 << 20) / 4;  // numbers: 25 MiB, as torch's DistributedDataParallel has them
constexpr std::int64_t kMostPieces = 64;          // of a bucket: 400 KiB each
constexpr int kGradientTag = 72;

std::size_t bytes_of(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

IndexRange micro_batches_of(std::uint64_t num_micro_batches, int rank, int num_ranks) {
  const auto r = static_cast<std::uint64_t>(rank), n = static_cast<std::uint64_t>(num_ranks);
  return {num_micro_batches * r / n, num_micro_batches * (r + 1) / n};
}

GradientTree::GradientTree(const Communicator& world, std::uint64_t num_micro_batches, bool fast)
    : world_(world), num_micro_batches_(num_micro_batches), fast_(fast) {
  MAGISTER_ASSERT(num_micro_batches > 0);
  while ((std::uint64_t{1} << levels_) < num_micro_batches) ++levels_;
  while (pieces_ < world.size() && pieces_ < kMostPieces) pieces_ *= 2;
}

IndexRange GradientTree::covered(Node node) const {
  const auto [level, number] = node;
  return {std::min(num_micro_batches_, number << level), std::min(num_micro_batches_, (number + 1) << level)};
}

int GradientTree::owner_of(Node node) const {
  const IndexRange range = covered(node);
  for (int rank = 0; rank < world_.size(); ++rank) {
    const IndexRange own = micro_batches_of(num_micro_batches_, rank, world_.size());
    if (own.begin <= range.begin && range.begin < own.end) return range.end <= own.end ? rank : -1;
  }
  return -1;
}

at::Tensor GradientTree::take_other_half(std::uint64_t micro_batch) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find({0, micro_batch ^ 1});
  if (found == nodes_.end() || owner_of({1, micro_batch / 2}) != world_.rank()) return {};
  at::Tensor other = std::move(found->second);
  nodes_.erase(found);
  return other;
}

void GradientTree::add(std::uint64_t micro_batch, at::Tensor flat_gradient, bool pair) {
  Node node = pair ? Node{1, micro_batch / 2} : Node{0, micro_batch};
  while (node.first < levels_) {
    const Node sibling{node.first, node.second ^ 1}, parent{node.first + 1, node.second / 2};
    if (owner_of(parent) != world_.rank()) break;
    if (covered(sibling).size() > 0) {
      at::Tensor other;
      {
        const std::lock_guard lock(mutex_);
        const auto found = nodes_.find(sibling);
        if (found == nodes_.end()) {
          nodes_.emplace(node, std::move(flat_gradient));
          return;
        }
        other = std::move(found->second);
        nodes_.erase(found);
      }
      flat_gradient.add_(other);
    }
    node = parent;
  }
  const std::lock_guard lock(mutex_);
  nodes_.emplace(node, std::move(flat_gradient));
}

std::vector<GradientTree::Part> GradientTree::reduce(Node node, std::int64_t begin, std::int64_t count) {
  const int me = world_.rank();
  if (const int owner = owner_of(node); owner >= 0) {
    std::vector<Part> parts(static_cast<std::size_t>(pieces_));
    for (std::int64_t p = 0; p < pieces_; ++p) {
      const std::int64_t first = count * p / pieces_, end = count * (p + 1) / pieces_;
      Part& part = parts[static_cast<std::size_t>(p)];
      part.owner = owner;
      if (owner == me) part.values = nodes_.at(node).narrow(0, begin + first, end - first);
    }
    return parts;
  }
  const Node left_node{node.first - 1, node.second * 2}, right_node{node.first - 1, node.second * 2 + 1};
  std::vector<Part> left = reduce(left_node, begin, count);
  if (covered(right_node).size() == 0) return left;
  std::vector<Part> right = reduce(right_node, begin, count);
  // The root divides by the lowest bit of a piece's number; the two below it, each with half of the pieces, by the next.
  const int bit = (levels_ - node.first) % std::max(1, std::countr_zero(static_cast<std::uint64_t>(pieces_)));
  std::vector<Transfer> transfers;
  for (std::size_t p = 0; p < left.size(); ++p) {
    if (((p >> bit) & 1) != 0) std::swap(left[p], right[p]);
    if (left[p].owner == right[p].owner) continue;
    const std::int64_t first = count * static_cast<std::int64_t>(p) / pieces_;
    const std::int64_t size = count * static_cast<std::int64_t>(p + 1) / pieces_ - first;
    if (right[p].owner == me) {
      transfers.push_back({right[p].values.data_ptr(), bytes_of(size), left[p].owner, true});
    } else if (left[p].owner == me) {
      right[p].values = at::empty({size}, at::kFloat);
      transfers.push_back({right[p].values.data_ptr(), bytes_of(size), right[p].owner, false});
    }
  }
  exchange(world_, transfers, kGradientTag);
  for (std::size_t p = 0; p < left.size(); ++p) {
    if (left[p].owner == me) {
      left[p].values.add_(right[p].values);
    } else {
      left[p].values = at::Tensor();
    }
  }
  return left;
}

at::Tensor GradientTree::fast_sum(std::int64_t flat_size) {
  at::Tensor own;  // a rank may have no micro-batch
  for (auto& [node, values] : nodes_) own = own.defined() ? own.add_(values) : std::move(values);
  if (!own.defined()) own = at::zeros({flat_size}, at::kFloat);
  world_.sum(std::span(own.data_ptr<float>(), static_cast<std::size_t>(flat_size)));
  return own;
}

at::Tensor GradientTree::sum(std::int64_t flat_size) {
  if (fast_ && world_.size() > 1) return fast_sum(flat_size);
  if (world_.size() == 1) return nodes_.begin()->second;
  at::Tensor out = at::empty({flat_size}, at::kFloat);
  for (std::int64_t begin = 0; begin < flat_size; begin += kBucket) {
    const std::int64_t count = std::min(kBucket, flat_size - begin);
    const std::vector<Part> parts = reduce({levels_, 0}, begin, count);
    std::vector<Transfer> pieces;
    for (std::int64_t p = 0; p < pieces_; ++p) {
      const Part& part = parts[static_cast<std::size_t>(p)];
      const std::int64_t first = count * p / pieces_, size = count * (p + 1) / pieces_ - first;
      at::Tensor here = out.narrow(0, begin + first, size);
      if (part.owner == world_.rank()) here.copy_(part.values);
      pieces.push_back({here.data_ptr(), bytes_of(size), part.owner, part.owner == world_.rank()});
    }
    broadcast_all(world_, pieces);
  }
  return out;
}

}  // namespace magister
