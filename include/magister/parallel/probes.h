// Probes: the properties of every rank from which the layout is computed.
#pragma once

#include <string>
#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

class Communicator;

struct RankProbe {
  int world_rank = 0;
  std::string host;    // its name, for messages; nodes of one job may have equal names, as containers do
  int host_index = 0;  // identifies the node: the world rank of its first rank
  int local_rank = 0;  // index among the ranks of its node, by world rank
  int local_size = 1;
  std::vector<int> cores;   // its affinity mask
  int quota_cores = 0;      // CPU quota of its cgroup; 0: no limit
  std::string quota_group;  // ranks of one host with equal groups share the quota
  std::vector<GpuDevice> gpus;
  int gpu_rank = 0, gpu_size = 1;  // index among the ranks of its node that see the same GPUs, by world rank
};

// Fills gpu_rank and gpu_size of all ranks from the GPUs that they see.
void find_gpu_sharers(std::vector<RankProbe>& ranks);

// The probe of this process as rank 0 of 1.
RankProbe probe_self();
// Probes of all ranks by world rank, the same on every rank. Collective over world.
std::vector<RankProbe> probe_ranks(const Communicator& world);
// The same with the ranks of this rank's node given: world.split_by_host(), except in tests.
std::vector<RankProbe> probe_ranks(const Communicator& world, const Communicator& node);
// Number of cores that each rank may keep busy, at least 1, by world rank. A core that k ranks of a host may use counts
// 1/k for each of them; a quota that k ranks share is divided in the same way.
std::vector<int> core_shares(const std::vector<RankProbe>& ranks);

}  // namespace magister
