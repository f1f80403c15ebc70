// The layout as a function of the ranks' probes and of the experiment, without communication: `plan --ranks N` and the
// real start give the same answer, and tests need no cluster.
#pragma once

#include <string>
#include <vector>

#include "magister/parallel/layout.h"
#include "magister/parallel/probes.h"

namespace magister {

struct RankPlace {
  int group_index = 0;  // of its first group
  int groups = 1;       // number of whole groups that it holds; also 1 if it holds a part of one
  int first_tp_rank = 0;
  int group_size = 1;
  int first_of_size = 0;  // index of its first group among those of its size
  int shards = 1;
  int threads_per_shard = 1;
  std::vector<int> devices;  // CUDA runtime indices of the shards; empty on CPUs
};

struct LayoutSolution {
  bool on_gpu = false;
  int num_groups = 1;
  int tp_size = 1;                  // the largest size
  std::vector<int> groups_of_size;  // by index of the sizes in config.shares; one entry if there is only one size
  std::vector<RankPlace> places;    // by world rank
  std::vector<DeviceRow> table;
};

// num_ranks probes like this one, for a run on GPUs on as many hosts like its own as the ranks need, equally many on
// each; otherwise all on one host.
std::vector<RankProbe> invented_ranks(const RankProbe& like, int num_ranks, const LayoutConfig& config);

// Returns whether groups of group_size devices are whole ranks, or parts of one rank, with none left over.
// devices_of_ranks: devices of each rank.
bool group_size_divides(const std::vector<int>& devices_of_ranks, int group_size);

// A warning about groups with different kinds of GPUs; empty if there are none.
std::string unlike_cards(const std::vector<DeviceRow>& table);

// Throws Error(kConfig) with the values that it used and the sizes that are possible.
LayoutSolution solve_layout(const std::vector<RankProbe>& ranks, const LayoutConfig& config);

}  // namespace magister
