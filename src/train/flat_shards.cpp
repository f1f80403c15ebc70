// See flat_shards.h.
#include "magister/train/flat_shards.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"

namespace magister {
namespace {

constexpr int kPartTag = 73;

std::size_t bytes_of_part(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

FlatShards::FlatShards(std::int64_t flat_size, int num_ranks) : flat_size_(flat_size), num_ranks_(num_ranks) {
  MAGISTER_ASSERT(flat_size >= 0 && num_ranks > 0);
}

FlatRange FlatShards::bucket_range(std::int64_t bucket) const {
  return {bucket_begin(bucket), std::min(flat_size_, bucket_begin(bucket + 1))};
}

FlatRange FlatShards::piece(std::int64_t bucket, int rank) const {
  const std::int64_t begin = bucket_range(bucket).begin, end = bucket_range(bucket).end;
  const std::int64_t blocks = (end - begin + kBlock - 1) / kBlock;
  const auto border = [&](std::int64_t r) { return std::min(end, begin + blocks * r / num_ranks_ * kBlock); };
  return {border(rank), border(rank + 1)};
}

// All buckets but the last have the same size.
std::int64_t FlatShards::offset(std::int64_t bucket, int rank) const {
  return bucket == 0 ? 0 : bucket * piece(0, rank).size();
}

std::int64_t FlatShards::size(int rank) const {
  const std::int64_t last = num_buckets() - 1;
  return last < 0 ? 0 : offset(last, rank) + piece(last, rank).size();
}

void gather_pieces(const Communicator& ranks, const FlatShards& shards, at::Tensor& flat,
                   std::optional<std::int64_t> bucket) {
  if (ranks.size() == 1) return;
  const auto [first, end] = shards.chosen_buckets(bucket);
  for (std::int64_t index = first; index < end; ++index) {
    std::vector<Transfer> pieces;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const FlatRange piece = shards.piece(index, rank);
      pieces.push_back({flat.data_ptr<float>() + piece.begin, bytes_of_part(piece.size()), rank, rank == ranks.rank()});
    }
    broadcast_all(ranks, pieces);
  }
}

namespace {

// The overlap of `range` and a rank's pieces: where it begins in the range and in the rank's part, and its size.
using Shared = std::function<void(std::int64_t in_range, std::int64_t in_part, std::int64_t count)>;

void for_shared(const FlatShards& shards, int rank, const FlatRange& range, const Shared& visit) {
  for (std::int64_t bucket = range.begin / FlatShards::kBucket; FlatShards::bucket_begin(bucket) < range.end;
       ++bucket) {
    const FlatRange piece = shards.piece(bucket, rank);
    const std::int64_t begin = std::max(piece.begin, range.begin), end = std::min(piece.end, range.end);
    if (begin < end) visit(begin - range.begin, shards.offset(bucket, rank) + begin - piece.begin, end - begin);
  }
}

}  // namespace

namespace {

void copy_by(const CopyNumbers& copy, const at::Tensor& from, const at::Tensor& to) {
  if (copy) {
    copy(from, to);
  } else {
    to.copy_(from);
  }
}

}  // namespace

at::Tensor range_on_first(const Communicator& ranks, const FlatShards& shards, const at::Tensor& part,
                          const FlatRange& range, const CopyNumbers& to_host, const at::Tensor& into) {
  const bool is_first = ranks.rank() == 0;
  at::Tensor out = is_first && !into.defined() ? at::empty({range.size()}, at::kFloat) : into;
  if (is_first && part.defined()) {
    for_shared(shards, 0, range, [&](std::int64_t in_range, std::int64_t in_part, std::int64_t count) {
      copy_by(to_host, part.narrow(0, in_part, count), out.narrow(0, in_range, count));
    });
  }
  std::vector<Transfer> transfers;
  std::vector<at::Tensor> given;  // copies from a GPU's part, kept until they are sent
  for (int rank = 1; rank < ranks.size(); ++rank) {
    if (!is_first && rank != ranks.rank()) continue;
    for_shared(shards, rank, range, [&](std::int64_t in_range, std::int64_t in_part, std::int64_t count) {
      at::Tensor piece = is_first ? out.narrow(0, in_range, count) : part.narrow(0, in_part, count);
      if (!is_first && to_host) {
        to_host(piece, given.emplace_back(at::empty({count}, at::kFloat)));
        piece = given.back();
      }
      auto* const data = piece.data_ptr<float>();
      transfers.push_back({data, bytes_of_part(count), is_first ? rank : 0, !is_first});
    });
  }
  exchange(ranks, transfers, kPartTag);
  return out;
}

void keep_own(const FlatShards& shards, int rank, const at::Tensor& values, const FlatRange& range, at::Tensor& part,
              const CopyNumbers& to_device) {
  const at::Tensor flat = values.flatten();
  for_shared(shards, rank, range, [&](std::int64_t in_range, std::int64_t in_part, std::int64_t count) {
    copy_by(to_device, flat.narrow(0, in_range, count), part.narrow(0, in_part, count));
  });
}

at::Tensor part_of(const FlatShards& shards, int rank, const at::Tensor& flat) {
  at::Tensor part = at::empty({shards.size(rank)}, at::kFloat);
  keep_own(shards, rank, flat, {0, shards.flat_size()}, part);
  return part;
}

}  // namespace magister
