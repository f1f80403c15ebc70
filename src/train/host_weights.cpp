// See host_weights.h.
#include "magister/train/host_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"
#include "magister/parallel/shared_memory.h"
#include "magister/train/fresh_zeros.h"

namespace magister {

HostWeights::HostWeights(const Communicator& world, const Communicator& host, std::int64_t size, bool may_share) {
  const auto num_bytes = static_cast<std::size_t>(size) * sizeof(float);
  std::shared_ptr<SharedMemory> memory;
  if (may_share && size > 0 && host.size() > 1) memory = SharedMemory::make(host, num_bytes);
  const bool has_its_own = memory == nullptr && host.size() > 1;
  // Either all hosts share or none, because they meet in gather().
  is_shared_ = may_share && size > 0 && world.size() > 1 && world.max(std::uint64_t{has_its_own ? 1u : 0u}) == 0;
  if (!is_shared_ || memory == nullptr) {
    flat_ = fresh_zeros(size);
  } else {
    flat_ = at::from_blob(memory->data(), {size}, [memory](void*) {}, at::kFloat);
  }
  if (!is_shared_) return;
  const bool is_first = host.rank() == 0;
  first_of_hosts_ = world.split(is_first ? 0 : -1, world.rank());
  std::uint64_t number = static_cast<std::uint64_t>(first_of_hosts_.rank());
  host.broadcast(&number, sizeof number, 0);
  for (const std::uint64_t of : world.all_gather(number)) host_of_.push_back(static_cast<int>(of));
}

void HostWeights::gather(const Communicator& world, const Communicator& host, const FlatShards& shards,
                         std::optional<std::int64_t> bucket) {
  if (!is_shared_) return gather_pieces(world, shards, flat_, bucket);
  host.barrier();
  if (first_of_hosts_.size() > 1) {
    const auto [first, end] = shards.chosen_buckets(bucket);
    for (std::int64_t index = first; index < end; ++index) {
      std::vector<Transfer> pieces;
      for (int rank = 0; rank < world.size(); ++rank) {
        const FlatRange piece = shards.piece(index, rank);
        pieces.push_back({flat_.data_ptr<float>() + piece.begin, static_cast<std::size_t>(piece.size()) * sizeof(float),
                          host_of_[static_cast<std::size_t>(rank)], false});
      }
      broadcast_all(first_of_hosts_, pieces);
    }
  }
  host.barrier();
}

}  // namespace magister
