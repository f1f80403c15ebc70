// Probes: what every rank is and sees. The layout is solved from them.
#pragma once

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

}  // namespace magister
