// How a flat tensor is divided over the ranks of ZeRO-1 (Rajbhandari et al., arXiv 1910.02054) and of a sum: buckets of 25 MiB one after the
// other, each cut into a piece a rank. Pieces begin at multiples of 4,096 numbers of the flat tensor, whatever the number of ranks; sizes that do
// not divide give pieces that differ by one block, or empty ones. A rank's part of a flat tensor is its pieces, one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "magister/parallel/communicator.h"

namespace magister {

struct FlatRange {
  std::int64_t begin = 0, end = 0;  // numbers of the flat tensor
  std::int64_t size() const { return end - begin; }
};

class FlatShards {
 public:
  static constexpr std::int64_t kBlock = 4096;            // numbers that no border divides
  static constexpr std::int64_t kBucket = 1600 * kBlock;  // 25 MiB, as torch's DistributedDataParallel has them

  FlatShards(std::int64_t flat_size, int num_ranks);

  int num_ranks() const { return num_ranks_; }
  std::int64_t flat_size() const { return flat_size_; }
  std::int64_t num_buckets() const { return (flat_size_ + kBucket - 1) / kBucket; }
  FlatRange piece(std::int64_t bucket, int rank) const;
  // Where a piece begins in the rank's part.
  std::int64_t offset(std::int64_t bucket, int rank) const;
  // Of the rank's part.
  std::int64_t size(int rank) const;

 private:
  std::int64_t flat_size_;
  int num_ranks_;
};

// The parts below are f32 [shards.size(rank)], flat tensors [shards.flat_size()]; the ranks are those of `ranks`.

// Every rank has its own pieces of `flat`; afterwards all have all. Collective over ranks.
void gather_pieces(const Communicator& ranks, const FlatShards& shards, at::Tensor& flat);
// From contiguous f32 to contiguous f32 of as many numbers.
using CopyNumbers = std::function<void(const at::Tensor& from, const at::Tensor& to)>;
// The numbers of a range, on the host of rank 0; undefined elsewhere. to_host: of parts on a GPU. Collective over ranks.
at::Tensor range_on_first(const Communicator& ranks, const FlatShards& shards, const at::Tensor& part,
                          const FlatRange& range, const CopyNumbers& to_host = {});
// values: a range's numbers, on the host; what is the rank's goes into its part. to_device: of a part on a GPU. Local.
void keep_own(const FlatShards& shards, int rank, const at::Tensor& values, const FlatRange& range, at::Tensor& part,
              const CopyNumbers& to_device = {});
// A flat tensor's numbers that are the rank's. Local.
at::Tensor part_of(const FlatShards& shards, int rank, const at::Tensor& flat);

}  // namespace magister
