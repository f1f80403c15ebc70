// See gradient_tree.h. Every rank begins the buckets in the same order, and each bucket's messages have their own tags.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"
#include "magister/train/memory_ladder.h"
#include "magister/train/staged_copies.h"
#include "train/device_sums.h"
#include "train/sum_schedule.h"

namespace magister {
namespace {

constexpr int kFirstTag = 100, kNumTags = 16384;  // MPI promises 32,767
// Buckets that are exchanged at once. Each takes memory for what arrives, at most 25 MiB.
constexpr std::size_t kMostUnderWay = 4;

std::size_t bytes_of(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

IndexRange micro_batches_of(std::uint64_t num_micro_batches, int rank, int num_ranks) {
  return SumTree(num_micro_batches, num_ranks).micro_batches_of(rank);
}

struct GradientTree::Schedule {
  SumTree tree;
  SumSchedule sums;
};

struct GradientTree::Bucket {
  struct Arrival {
    at::Tensor sum, added;
  };

  std::int64_t index = 0;
  BucketNodes nodes;
  std::uint64_t missing = 0;  // micro-batches of this rank that were not added yet
  std::size_t round = 0;      // the next one to begin
  bool delivered = false, over = false;
  PendingExchange pending;
  std::vector<Arrival> arrivals;  // of the round under way, added at its end
};

GradientTree::GradientTree(const Communicator& world, std::uint64_t num_micro_batches, std::int64_t flat_size,
                           const GradientSumOptions& options)
    : world_(world), options_(options), shards_(flat_size, world.size()) {
  const SumTree tree(num_micro_batches, world.size());
  const int me = world.rank();
  schedule_ =
      std::make_unique<Schedule>(Schedule{tree, options.fast ? direct_schedule(tree, me) : aligned_schedule(tree, me)});
  buckets_ = std::vector<Bucket>(world.size() == 1 ? 1 : static_cast<std::size_t>(shards_.num_buckets()));
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].index = static_cast<std::int64_t>(i);
    buckets_[i].missing = tree.micro_batches_of(me).size();
  }
  not_begun_ = buckets_.size();
  threads_may_move_ = world.size() > 1 && (options.exchange != nullptr || threads_may_exchange());
  MAGISTER_ASSERT(!options.stays || world.size() == 1);
  if (world.size() == 1) return;
  if (options.exchange != nullptr) {
    devices_ = std::make_unique<DeviceSums>(*options.exchange, shards_, schedule_->sums, me, options.divided);
    return;
  }
  const std::int64_t size = options.divided ? shards_.size(me) : flat_size;
  out_ = options.copies != nullptr ? options.copies->take(size) : at::empty({size}, at::kFloat);
}

GradientTree::~GradientTree() = default;

std::uint64_t GradientTree::arriving_bytes(std::int64_t flat_size) {
  return bytes_of(std::min(flat_size, static_cast<std::int64_t>(kMostUnderWay) * FlatShards::kBucket));
}

std::size_t GradientTree::num_buckets() const { return buckets_.size(); }

FlatRange GradientTree::bucket(std::size_t index) const {
  if (world_.size() == 1) return {0, shards_.flat_size()};
  return shards_.bucket_range(static_cast<std::int64_t>(index));
}

std::vector<at::Tensor> GradientTree::take_other_half(std::uint64_t micro_batch) {
  const TreeNode other{0, micro_batch ^ 1};
  const SumTree& tree = schedule_->tree;
  if (tree.covered(other).size() == 0 || tree.owner_of({1, micro_batch / 2}) != world_.rank()) return {};
  const std::lock_guard lock(mutex_);
  const auto has_it = [&](const Bucket& bucket) { return bucket.nodes.contains(other); };
  if (!std::all_of(buckets_.begin(), buckets_.end(), has_it)) return {};
  std::vector<at::Tensor> halves;
  for (Bucket& bucket : buckets_) halves.push_back(std::move(bucket.nodes.extract(other).mapped()));
  return halves;
}

void GradientTree::add(std::uint64_t micro_batch, std::size_t index, at::Tensor values, bool pair) {
  const SumTree& tree = schedule_->tree;
  Bucket& bucket = buckets_[index];
  TreeNode node = pair ? TreeNode{1, micro_batch / 2} : TreeNode{0, micro_batch};
  while (node.first < tree.levels()) {
    const TreeNode sibling{node.first, node.second ^ 1}, parent{node.first + 1, node.second / 2};
    if (tree.owner_of(parent) != world_.rank()) break;
    if (tree.covered(sibling).size() > 0) {
      at::Tensor other;
      {
        const std::lock_guard lock(mutex_);
        const auto found = bucket.nodes.find(sibling);
        if (found == bucket.nodes.end()) {
          bucket.nodes.emplace(node, std::move(values));
          --bucket.missing;
          return;
        }
        other = std::move(found->second);
        bucket.nodes.erase(found);
      }
      values.add_(other);
    }
    node = parent;
  }
  values = on_host(std::move(values));
  const std::lock_guard lock(mutex_);
  bucket.nodes.emplace(node, std::move(values));
  --bucket.missing;
}

// GPU code that computes on the host takes the same path, for tests.
at::Tensor GradientTree::on_host(at::Tensor values) const {
  if (options_.stays || devices_) return values;
  if (options_.copies == nullptr || !options_.from_device) return values.cpu();
  return options_.copies->copy_of(values);
}

bool GradientTree::is_ready(const Bucket& bucket) {
  const std::lock_guard lock(mutex_);
  return bucket.missing == 0;
}

void GradientTree::move_on() {
  if (!threads_may_move_) return;
  const std::unique_lock lock(moving_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  try {
    move_all();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;  // later, when the pass has freed its memory
  }
}

// Returns whether anything moved.
bool GradientTree::move_all() {
  if (devices_) return move_on_devices();
  bool moved = false;
  while (not_begun_ > 0 && under_way_.size() < kMostUnderWay && is_ready(buckets_[not_begun_ - 1])) {
    if (options_.fast) add_up_own(buckets_[not_begun_ - 1]);
    under_way_.push_back(--not_begun_);
    moved = true;
  }
  for (const std::size_t index : under_way_) moved = move(buckets_[index]) || moved;
  std::erase_if(under_way_, [&](std::size_t index) { return buckets_[index].over; });
  return moved;
}

// All of a bucket's sum is queued at once.
bool GradientTree::move_on_devices() {
  bool moved = false;
  while (not_begun_ > 0 && is_ready(buckets_[not_begun_ - 1])) {
    Bucket& bucket = buckets_[not_begun_ - 1];
    if (options_.fast) add_up_own(bucket);
    devices_->begin(bucket.index, bucket.nodes);
    --not_begun_;
    moved = true;
  }
  devices_->release();
  return moved;
}

void GradientTree::add_up_own(Bucket& bucket) const {
  const std::vector<TreeNode> own = schedule_->tree.nodes_of(world_.rank());
  for (std::size_t i = 1; i < own.size(); ++i) {
    const auto other = bucket.nodes.find(own[i]);
    if (other == bucket.nodes.end()) continue;  // added by a call after which there was no memory
    bucket.nodes.at(own.front()).add_(other->second);
    bucket.nodes.erase(other);
  }
}

// If there is no memory, everything is as it was before the round that did not begin.
bool GradientTree::move(Bucket& bucket) {
  bool moved = false;
  while (!bucket.over && bucket.pending.done()) {
    for (Bucket::Arrival& arrival : bucket.arrivals) arrival.sum.add_(arrival.added);
    bucket.arrivals.clear();
    if (bucket.delivered) {
      bucket.nodes.clear();
      bucket.over = true;
    } else if (bucket.round < schedule_->sums.rounds.size()) {
      begin_round(bucket);
    } else {
      deliver(bucket);
    }
    moved = true;
  }
  return moved;
}

int GradientTree::tag_of(const Bucket& bucket) const {
  const auto rounds = static_cast<std::int64_t>(schedule_->sums.rounds.size()) + 1;
  return kFirstTag + static_cast<int>((bucket.index * rounds + static_cast<std::int64_t>(bucket.round)) % kNumTags);
}

void GradientTree::begin_round(Bucket& bucket) {
  const int me = world_.rank();
  std::vector<Transfer> transfers;
  std::vector<at::Tensor> kept;
  std::vector<Bucket::Arrival> arrivals;
  for (const SumMeeting& meeting : schedule_->sums.rounds[bucket.round]) {
    const FlatRange piece = shards_.piece(bucket.index, meeting.piece);
    const bool keeps = meeting.kept.rank == me, gives = meeting.given.rank == me;
    const at::Tensor given =
        gives ? held(bucket.nodes, meeting.given, bucket.index, piece) : at::empty({piece.size()}, at::kFloat);
    if (keeps) arrivals.push_back({held(bucket.nodes, meeting.kept, bucket.index, piece), given});
    if (keeps && gives) continue;
    transfers.push_back(
        {given.data_ptr(), bytes_of(piece.size()), keeps ? meeting.given.rank : meeting.kept.rank, gives});
    kept.push_back(given);
  }
  bucket.pending = PendingExchange(world_, transfers, tag_of(bucket), std::move(kept));
  bucket.arrivals = std::move(arrivals);
  ++bucket.round;
}

// A rank without a micro-batch gets its piece from the rank that has it.
void GradientTree::deliver(Bucket& bucket) {
  const int me = world_.rank();
  const FlatRange own = shards_.piece(bucket.index, me);
  const at::Tensor out = out_.narrow(0, options_.divided ? shards_.offset(bucket.index, me) : own.begin, own.size());
  std::vector<Transfer> transfers;
  std::vector<at::Tensor> kept;
  for (int p = 0; p < world_.size(); ++p) {
    const SumHolder& holder = schedule_->sums.ends[static_cast<std::size_t>(p)];
    const bool receives = p == me, has = holder.rank == me;
    if (!receives && !has) continue;
    const FlatRange piece = shards_.piece(bucket.index, p);
    const at::Tensor sum = has ? held(bucket.nodes, holder, bucket.index, piece) : out;
    if (receives && has) {
      out.copy_(sum);
      continue;
    }
    transfers.push_back({sum.data_ptr(), bytes_of(piece.size()), has ? p : holder.rank, has});
    kept.push_back(sum);
  }
  bucket.pending = PendingExchange(world_, transfers, tag_of(bucket), std::move(kept));
  bucket.delivered = true;
}

at::Tensor GradientTree::finish() {
  if (world_.size() == 1) return std::move(buckets_.front().nodes.begin()->second);
  const std::lock_guard lock(moving_);
  if (devices_) {
    move_all();
    MAGISTER_ASSERT(not_begun_ == 0);  // all micro-batches were added
    world_.barrier();                  // from here on only devices are waited for, within a limit
    return devices_->finish();
  }
  while (not_begun_ > 0 || !under_way_.empty()) {
    if (move_all()) continue;
    MAGISTER_ASSERT(!under_way_.empty());  // all micro-batches were added
    buckets_[under_way_.front()].pending.wait();
  }
  if (!options_.divided) gather_pieces(world_, shards_, out_);
  return std::move(out_);
}

}  // namespace magister
