// The division of a flat tensor over ranks, for ZeRO-1 (Rajbhandari et al., arXiv 1910.02054) and for sums: consecutive
// buckets of 25 MiB, each divided into one piece per rank. Pieces begin at multiples of 4,096 numbers of the flat
// tensor, whatever the number of ranks. If a size does not divide evenly, pieces differ by one block or are empty. A
// rank's part of a flat tensor is its pieces, one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "magister/parallel/communicator.h"

namespace magister {

struct FlatRange {
  std::int64_t begin = 0, end = 0;  // numbers of the flat tensor
  std::int64_t size() const { return end - begin; }
};

class FlatShards {
 public:
  static constexpr std::int64_t kBlock = 4096;            // numbers that are never divided
  static constexpr std::int64_t kBucket = 1600 * kBlock;  // 25 MiB, as in torch's DistributedDataParallel

  FlatShards(std::int64_t flat_size, int num_ranks);

  int num_ranks() const { return num_ranks_; }
  std::int64_t flat_size() const { return flat_size_; }
  std::int64_t num_buckets() const { return (flat_size_ + kBucket - 1) / kBucket; }
  static constexpr std::int64_t bucket_begin(std::int64_t bucket) { return bucket * kBucket; }
  FlatRange bucket_range(std::int64_t bucket) const;
  // The buckets of a sum or exchange: that one, or all.
  FlatRange chosen_buckets(std::optional<std::int64_t> bucket) const {
    return bucket ? FlatRange{*bucket, *bucket + 1} : FlatRange{0, num_buckets()};
  }
  FlatRange piece(std::int64_t bucket, int rank) const;
  // Offset of a piece in the rank's part.
  std::int64_t offset(std::int64_t bucket, int rank) const;
  // Size of the rank's part.
  std::int64_t size(int rank) const;

 private:
  std::int64_t flat_size_;
  int num_ranks_;
};

// Below, parts are f32 [shards.size(rank)] and flat tensors f32 [shards.flat_size()]; the ranks are those of `ranks`.

// Each rank has its own pieces of `flat`; afterwards every rank has all. bucket: only that one. Collective over ranks.
void gather_pieces(const Communicator& ranks, const FlatShards& shards, at::Tensor& flat,
                   std::optional<std::int64_t> bucket = {});
// Copies contiguous f32 to contiguous f32 of the same size.
using CopyNumbers = std::function<void(const at::Tensor& from, const at::Tensor& to)>;
// Returns the numbers of a range, on the host of rank 0; undefined elsewhere. to_host: for parts on a GPU. into: on
// rank 0, the f32 [range.size()] that they are written to; undefined: a new tensor. part: on rank 0 undefined if `into`
// has its numbers already. Collective over ranks.
at::Tensor range_on_first(const Communicator& ranks, const FlatShards& shards, const at::Tensor& part,
                          const FlatRange& range, const CopyNumbers& to_host = {}, const at::Tensor& into = {});
// values: the numbers of a range, on the host. Copies those that belong to the rank into its part. to_device: for a
// part on a GPU. Local.
void keep_own(const FlatShards& shards, int rank, const at::Tensor& values, const FlatRange& range, at::Tensor& part,
              const CopyNumbers& to_device = {});
// Returns the rank's part of a flat tensor. Local.
at::Tensor part_of(const FlatShards& shards, int rank, const at::Tensor& flat);

}  // namespace magister
