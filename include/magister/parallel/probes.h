// Probes: what every rank is and sees, and how fast rank 0 reaches it. The layout is solved from the first, `doctor`
// prints both.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

class Communicator;

struct RankProbe {
  int world_rank = 0;
  std::string host;    // its name, for messages: nodes of one job may have equal names, as containers do
  int host_index = 0;  // which ranks share a node: the world rank of its first
  int local_rank = 0;  // among the ranks of its node, by world rank
  int local_size = 1;
  std::vector<int> cores;   // its affinity mask
  int quota_cores = 0;      // of its cgroup, 0: no limit
  std::string quota_group;  // ranks of one host with equal groups share the quota
  std::vector<GpuDevice> gpus;
  int gpu_rank = 0, gpu_size = 1;  // its place among the ranks of its node that see the same GPUs, by world rank
};

// Fills gpu_rank and gpu_size of all ranks from what they see.
void find_gpu_sharers(std::vector<RankProbe>& ranks);

// This process as rank 0 of 1.
RankProbe probe_self();
// By world rank, the same on every rank. Collective over world.
std::vector<RankProbe> probe_ranks(const Communicator& world);
// The same with the ranks of this rank's node given: world.split_by_host() but for tests.
std::vector<RankProbe> probe_ranks(const Communicator& world, const Communicator& node);
// Cores that each rank may keep busy, at least 1: a core that k ranks of a host may use counts 1/k for each, a quota
// that k ranks share likewise. By world rank.
std::vector<int> core_shares(const std::vector<RankProbe>& ranks);

struct LinkProbe {
  int world_rank = 0;               // the other end; rank 0 is this end
  double latency_microseconds = 0;  // half a round trip of 8 bytes, median of 50
  double megabytes_per_second = 0;  // one direction, best of 3
  bool intact = false;              // every byte came back as sent
};

// Rank 0 with every other rank, one after another; the same result on every rank (empty when alone). About 10 ms per rank
// on one host. Collective over world.
std::vector<LinkProbe> probe_links(const Communicator& world, std::size_t message_bytes = std::size_t{8} << 20);

}  // namespace magister
