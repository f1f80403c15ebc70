// See gradient_tree.h. Every rank walks the same tree in the same order, so that a send always meets its receive.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kBucket = (25 << 20) / 4;  // numbers: 25 MiB, as torch's DistributedDataParallel has them
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

GradientTree::Part GradientTree::reduce(Node node, std::int64_t bucket, std::int64_t begin, std::int64_t count) {
  if (const int owner = owner_of(node); owner >= 0) {
    if (owner != world_.rank()) return {owner, {}};
    return {owner, nodes_.at(node).narrow(0, begin, count)};
  }
  const Node left_node{node.first - 1, node.second * 2}, right_node{node.first - 1, node.second * 2 + 1};
  Part left = reduce(left_node, bucket, begin, count);
  if (covered(right_node).size() == 0) return left;
  Part right = reduce(right_node, bucket, begin, count);
  if (((bucket >> node.first) & 1) != 0) std::swap(left, right);
  const int me = world_.rank();
  if (left.owner != right.owner) {
    if (right.owner == me) world_.send(right.values.const_data_ptr(), bytes_of(count), left.owner, kGradientTag);
    if (left.owner == me) {
      right.values = at::empty({count}, at::kFloat);
      world_.receive(right.values.data_ptr(), bytes_of(count), right.owner, kGradientTag);
    }
  }
  if (left.owner == me) left.values.add_(right.values);
  return {left.owner, left.owner == me ? left.values : at::Tensor()};
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
  const Node root{levels_, 0};
  at::Tensor out;
  for (std::int64_t begin = 0, bucket = 0; begin < flat_size; begin += kBucket, ++bucket) {
    const std::int64_t count = std::min(kBucket, flat_size - begin);
    const Part part = reduce(root, bucket, begin, count);
    if (world_.size() == 1) return nodes_.begin()->second;
    if (!out.defined()) out = at::empty({flat_size}, at::kFloat);
    at::Tensor here = out.narrow(0, begin, count);
    if (part.owner == world_.rank()) here.copy_(part.values);
    world_.broadcast(here.data_ptr(), bytes_of(count), part.owner);
  }
  return out;
}

}  // namespace magister
