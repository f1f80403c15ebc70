// The layout as a function of what the ranks report and of the experiment, without any communication: `plan --ranks N`
// and the real start give the same answer, and tests need no cluster.
#pragma once

#include <string>
#include <vector>

#include "magister/parallel/layout.h"
#include "magister/parallel/probes.h"

namespace magister {

struct RankPlace {
  int group_index = 0;  // of its first group
  int groups = 1;       // that it holds whole; 1 where it holds a part of one
  int first_tp_rank = 0;
  int group_size = 1;
  int first_of_size = 0;  // of its first group among those of its size
  int shards = 1;
  int threads_per_shard = 1;
  std::vector<int> devices;  // CUDA runtime indices of the shards; empty on CPUs
};

struct LayoutSolution {
  bool on_gpu = false;
  int num_groups = 1;
  int tp_size = 1;                  // the largest
  std::vector<int> groups_of_size;  // by place in the sizes of config.shares; one number where there is one size
  std::vector<RankPlace> places;    // by world rank
  std::vector<DeviceRow> table;
};

// num_ranks like this one, on hosts like its own: one where they have room on it, else as many ranks on each as it has GPUs.
std::vector<RankProbe> invented_ranks(const RankProbe& like, int num_ranks);

// Whether groups of group_size devices are whole ranks, or parts of one, and none is left over; ranks hold so many devices each.
bool group_size_divides(const std::vector<int>& devices_of_ranks, int group_size);

// What is to be said of groups whose GPUs are not of one kind; empty: there are none.
std::string unlike_cards(const std::vector<DeviceRow>& table);

// Throws Error(kConfig) with every value it saw and the sizes that do work.
LayoutSolution solve_layout(const std::vector<RankProbe>& ranks, const LayoutConfig& config);

}  // namespace magister
