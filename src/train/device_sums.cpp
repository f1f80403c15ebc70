// See device_sums.h. Pieces without numbers are left out on both sides of a message.
#include "train/device_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "train/gpu/put_kernel.h"
#include "train/gpu_numbers.h"

namespace magister {
namespace {

// Places in memory begin at whole blocks, as pieces do.
std::int64_t whole_blocks(std::int64_t count) {
  return (count + FlatShards::kBlock - 1) / FlatShards::kBlock * FlatShards::kBlock;
}

std::int64_t arriving_numbers(const FlatShards& shards, const SumSchedule& schedule, int rank) {
  std::int64_t most = 0;
  for (const std::vector<SumMeeting>& round : schedule.rounds) {
    std::int64_t numbers = 0;
    for (const SumMeeting& meeting : round)
      numbers += meeting.given.rank == rank ? 0 : whole_blocks(shards.piece(0, meeting.piece).size());
    most = std::max(most, numbers);
  }
  return most;
}

// Each rank's piece of `flat` goes to all others.
void pass_to_all(DeviceExchange& exchange, const FlatShards& shards, int rank, std::int64_t bucket,
                 const at::Tensor& flat) {
  std::vector<DeviceMessage> messages;
  const auto place = [&](int of) {
    const FlatRange piece = shards.piece(bucket, of);
    return flat.narrow(0, piece.begin, piece.size());
  };
  for (int other = 0; other < shards.num_ranks(); ++other) {
    if (other == rank) continue;
    if (shards.piece(bucket, rank).size() > 0) messages.push_back({place(rank), other, true});
    if (shards.piece(bucket, other).size() > 0) messages.push_back({place(other), other, false});
  }
  exchange.pass(messages);
}

}  // namespace

at::Tensor held(const BucketNodes& nodes, const SumHolder& holder, std::int64_t bucket, const FlatRange& piece) {
  return nodes.at(holder.node).narrow(0, piece.begin - FlatShards::bucket_begin(bucket), piece.size());
}

DeviceSums::DeviceSums(DeviceExchange& exchange, const FlatShards& shards, const SumSchedule& schedule, int rank,
                       bool divided)
    : exchange_(exchange), shards_(shards), schedule_(schedule), rank_(rank), divided_(divided) {}

// When the first bucket is there: until then the passes have the memory.
void DeviceSums::take_memory() {
  if (out_.defined()) return;
  const auto options = at::TensorOptions(at::kFloat).device(device_of(exchange_.queue()));
  not_finite_ = at::zeros({1}, options.dtype(at::kInt));
  arrivals_ = at::empty({arriving_numbers(shards_, schedule_, rank_)}, options);
  out_ = at::empty({divided_ ? shards_.size(rank_) : shards_.flat_size()}, options);
}

void DeviceSums::begin(std::int64_t bucket, BucketNodes& nodes) {
  take_memory();
  exchange_.follow_default();
  for (const std::vector<SumMeeting>& round : schedule_.rounds) meet(bucket, nodes, round);
  deliver(bucket, nodes);
  if (!divided_) pass_to_all(exchange_, shards_, rank_, bucket, out_);
  held_.push_back({exchange_.mark(), std::exchange(nodes, {})});
}

void DeviceSums::meet(std::int64_t bucket, const BucketNodes& nodes, std::span<const SumMeeting> round) {
  struct Sum {
    at::Tensor kept, added;
  };
  std::vector<DeviceMessage> messages;
  std::vector<Sum> sums;
  std::int64_t used = 0;
  for (const SumMeeting& meeting : round) {
    const FlatRange piece = shards_.piece(bucket, meeting.piece);
    if (piece.size() == 0) continue;
    const bool keeps = meeting.kept.rank == rank_, gives = meeting.given.rank == rank_;
    const at::Tensor given =
        gives ? held(nodes, meeting.given, bucket, piece) : arrivals_.narrow(0, used, piece.size());
    if (!gives) used += whole_blocks(piece.size());
    if (keeps) sums.push_back({held(nodes, meeting.kept, bucket, piece), given});
    if (!keeps || !gives) messages.push_back({given, keeps ? meeting.given.rank : meeting.kept.rank, gives});
  }
  exchange_.pass(messages);
  for (const Sum& sum : sums) put(sum.added, sum.kept, true);
}

// A rank without a micro-batch gets its piece from the rank that has it.
void DeviceSums::deliver(std::int64_t bucket, const BucketNodes& nodes) {
  const FlatRange own = shards_.piece(bucket, rank_);
  const at::Tensor out = out_.narrow(0, divided_ ? shards_.offset(bucket, rank_) : own.begin, own.size());
  std::vector<DeviceMessage> messages;
  for (int p = 0; p < shards_.num_ranks(); ++p) {
    const SumHolder& holder = schedule_.ends[static_cast<std::size_t>(p)];
    const bool receives = p == rank_, has = holder.rank == rank_;
    const FlatRange piece = shards_.piece(bucket, p);
    if (piece.size() == 0 || (!receives && !has)) continue;
    if (receives && has) {
      put(held(nodes, holder, bucket, piece), out, false);
    } else {
      messages.push_back({has ? held(nodes, holder, bucket, piece) : out, has ? p : holder.rank, has});
    }
  }
  exchange_.pass(messages);
}

void DeviceSums::put(const at::Tensor& from, const at::Tensor& to, bool adds) const {
  MAGISTER_ASSERT(is_aligned_16(from) && is_aligned_16(to) && from.numel() == to.numel());
  gpu::start(gpu::PutNumbers{numbers<const float>(from), numbers<float>(to), from.numel(), adds,
                             numbers<std::uint32_t>(not_finite_)},
             exchange_.queue());
}

void DeviceSums::release() {
  while (!held_.empty() && exchange_.reached(held_.front().mark)) held_.pop_front();
}

at::Tensor DeviceSums::finish() {
  exchange_.wait();
  held_.clear();
  return std::move(out_);
}

void gather_on_devices(DeviceExchange& exchange, const FlatShards& shards, int rank, std::int64_t bucket,
                       const at::Tensor& flat) {
  exchange.follow_default();
  pass_to_all(exchange, shards, rank, bucket, flat);
}

}  // namespace magister
