// The weights of a training as a flat f32 tensor. The ranks of a host share one copy if that is possible, else each has
// its own. A change of a shared copy need not be sent to the other ranks of the host. Host memory then holds one copy
// instead of one per rank: for an 8B model on eight ranks 32 GB, not 256.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/train/flat_shards.h"

namespace magister {

class HostWeights {
 public:
  HostWeights() = default;  // undefined
  // Zeros, f32 [size]. Every rank writes the same values, or only its own part. may_share: false: one copy per rank.
  // host: the ranks of world on this rank's host. Collective over world.
  HostWeights(const Communicator& world, const Communicator& host, std::int64_t size, bool may_share);

  at::Tensor& tensor() { return flat_; }
  const at::Tensor& tensor() const { return flat_; }
  bool is_shared() const { return is_shared_; }

  // Each rank has changed its own pieces; afterwards every rank has all. No rank may read while others change theirs:
  // the ranks meet before the first change. shards: over world's ranks. bucket: only that one. Collective over world
  // and host, those of the constructor.
  void gather(const Communicator& world, const Communicator& host, const FlatShards& shards,
              std::optional<std::int64_t> bucket = {});

 private:
  at::Tensor flat_;
  bool is_shared_ = false;
  Communicator first_of_hosts_;  // only this rank, if it is not the first of its host
  std::vector<int> host_of_;     // by rank of world: number of its host in first_of_hosts_
};

}  // namespace magister
