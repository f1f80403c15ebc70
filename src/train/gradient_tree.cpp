// See gradient_tree.h. Every rank walks the same tree in the same order, so that a send always meets its receive.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"

namespace magister {
namespace {

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

// Where there is a choice, pieces are spread by the bits of their numbers.
bool GradientTree::belongs_left(int piece, Node left, Node right) const {
  const IndexRange own = micro_batches_of(num_micro_batches_, piece, world_.size());
  const auto meets = [&](const IndexRange& side) { return own.begin < side.end && side.begin < own.end; };
  if (meets(covered(left)) || meets(covered(right))) return meets(covered(left));
  return ((piece >> (left.first % 30)) & 1) == 0;
}

std::vector<GradientTree::Part> GradientTree::reduce(Node node, const FlatShards& shards, std::int64_t bucket) {
  const int me = world_.rank();
  std::vector<Part> parts(static_cast<std::size_t>(world_.size()));
  if (const int owner = owner_of(node); owner >= 0) {
    for (int p = 0; p < world_.size(); ++p) {
      const FlatRange piece = shards.piece(bucket, p);
      Part& part = parts[static_cast<std::size_t>(p)];
      part.owner = owner;
      if (owner == me) part.values = nodes_.at(node).narrow(0, piece.begin, piece.size());
    }
    return parts;
  }
  const Node left_node{node.first - 1, node.second * 2}, right_node{node.first - 1, node.second * 2 + 1};
  std::vector<Part> left = reduce(left_node, shards, bucket);
  if (covered(right_node).size() == 0) return left;
  std::vector<Part> right = reduce(right_node, shards, bucket);
  std::vector<Transfer> transfers;
  for (int p = 0; p < world_.size(); ++p) {
    const auto i = static_cast<std::size_t>(p);
    if (!belongs_left(p, left_node, right_node)) std::swap(left[i], right[i]);
    if (left[i].owner == right[i].owner) continue;
    const std::int64_t size = shards.piece(bucket, p).size();
    if (right[i].owner == me) {
      transfers.push_back({right[i].values.data_ptr(), bytes_of(size), left[i].owner, true});
    } else if (left[i].owner == me) {
      right[i].values = at::empty({size}, at::kFloat);
      transfers.push_back({right[i].values.data_ptr(), bytes_of(size), right[i].owner, false});
    }
  }
  exchange(world_, transfers, kGradientTag);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].owner == me) {
      left[i].values.add_(right[i].values);
    } else {
      left[i].values = at::Tensor();
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
  if (world_.size() == 1) return nodes_.begin()->second;
  if (fast_) return fast_sum(flat_size);
  const FlatShards shards(flat_size, world_.size());
  at::Tensor out = at::empty({flat_size}, at::kFloat);
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket)
    own_piece(shards, bucket, out.data_ptr<float>() + shards.piece(bucket, world_.rank()).begin);
  gather_pieces(world_, shards, out);
  return out;
}

at::Tensor GradientTree::part_of_sum(const FlatShards& shards) {
  MAGISTER_ASSERT(shards.num_ranks() == world_.size());
  if (world_.size() == 1) return nodes_.begin()->second;
  if (fast_) return part_of(shards, world_.rank(), fast_sum(shards.flat_size()));
  at::Tensor out = at::empty({shards.size(world_.rank())}, at::kFloat);
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket)
    own_piece(shards, bucket, out.data_ptr<float>() + shards.offset(bucket, world_.rank()));
  return out;
}

// A rank without a micro-batch gets its piece from whoever has it.
void GradientTree::own_piece(const FlatShards& shards, std::int64_t bucket, float* out) {
  const std::vector<Part> parts = reduce({levels_, 0}, shards, bucket);
  const int me = world_.rank();
  std::vector<Transfer> transfers;
  for (int p = 0; p < world_.size(); ++p) {
    const Part& part = parts[static_cast<std::size_t>(p)];
    const std::size_t bytes = bytes_of(shards.piece(bucket, p).size());
    if (part.owner == me && p == me) {
      std::copy_n(part.values.const_data_ptr<float>(), part.values.numel(), out);
    } else if (p == me) {
      transfers.push_back({out, bytes, part.owner, false});
    } else if (part.owner == me) {
      transfers.push_back({part.values.data_ptr(), bytes, p, true});
    }
  }
  exchange(world_, transfers, kGradientTag);
}

}  // namespace magister
