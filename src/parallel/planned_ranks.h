// The ranks of a planned cluster (gpu_cards.h), used instead of the real ranks.
#pragma once

#include <vector>

#include "magister/parallel/probes.h"

namespace magister {

// Ranks on the hosts of planned_hosts(), each with the cores of `like`. Throws Error(kConfig) if num_ranks cannot be
// divided over the hosts.
std::vector<RankProbe> planned_ranks(const RankProbe& like, int num_ranks);

}  // namespace magister
