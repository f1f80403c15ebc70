// The layout as a function of what the ranks report and of the experiment, without any communication: `plan --ranks N`
// and the real start give the same answer, and tests need no cluster.
#pragma once

#include <vector>

#include "magister/parallel/layout.h"
#include "magister/parallel/probes.h"

namespace magister {

struct RankPlace {
  int group_index = 0;
  int first_tp_rank = 0;
  int threads_per_shard = 1;
  int device_index = -1;  // CUDA runtime index, -1 on CPUs
};

struct LayoutSolution {
  bool on_gpu = false;
  int num_groups = 1;
  int tp_size = 1;
  int shards_per_rank = 1;
  std::vector<RankPlace> places;  // by world rank
  std::vector<DeviceRow> table;
};

// Throws Error(kConfig) with every value it saw and the sizes that do work.
LayoutSolution solve_layout(const std::vector<RankProbe>& ranks, const LayoutConfig& config);

}  // namespace magister
