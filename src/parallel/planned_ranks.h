// The ranks of a cluster that is planned (gpu_cards.h) in place of those that are there.
#pragma once

#include <vector>

#include "magister/parallel/probes.h"

namespace magister {

// On the hosts of planned_hosts(), with this one's cores each. Throws Error(kConfig) where so many ranks do not divide over them.
std::vector<RankProbe> planned_ranks(const RankProbe& like, int num_ranks);

}  // namespace magister
