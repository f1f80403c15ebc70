// A flat f32 tensor of which the ranks of a host have one copy together where that can be, and one each elsewhere: the weights of a training. What a rank
// has changed of a shared copy the others need not be sent. Host memory is one copy and not one a rank: of an 8B model on eight ranks 32 GB, not 256.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/train/flat_shards.h"

namespace magister {

class HostWeights {
 public:
  HostWeights() = default;  // undefined
  // Zeros, f32 [size]. Whoever writes them writes the same on every rank, or what is its rank's part alone. may_share: false: a copy a rank.
  // host: world's ranks on this rank's host. Collective over world.
  HostWeights(const Communicator& world, const Communicator& host, std::int64_t size, bool may_share);

  at::Tensor& tensor() { return flat_; }
  const at::Tensor& tensor() const { return flat_; }
  bool is_shared() const { return is_shared_; }

  // Every rank has changed its own pieces; afterwards all have all. No rank reads while others change theirs: before the first does, all have met.
  // shards: over world's ranks. Collective over world and host, those of the constructor.
  void gather(const Communicator& world, const Communicator& host, const FlatShards& shards);

 private:
  at::Tensor flat_;
  bool is_shared_ = false;
  Communicator first_of_hosts_;  // alone on ranks that are not the first of their host
  std::vector<int> host_of_;     // by rank of world: the number of its host in first_of_hosts_
};

}  // namespace magister
