// The layout of a job with groups of several sizes: which ranks of which host form groups of which size. Like every
// layout it is a function of the ranks' probes and of the experiment only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout_solver.h"

namespace magister {

inline constexpr std::uint64_t kUnknownMemory = ~std::uint64_t{0};

// A rank's number of devices and the smallest memory of one of them; kUnknownMemory on CPUs.
struct RankMemory {
  int devices = 1;
  std::uint64_t total_bytes = kUnknownMemory, free_bytes = kUnknownMemory;
  std::string cards;  // names and sizes of its cards; ranks with equal texts have the same kinds
};

// Assigns ranks to groups and fills solution.places. A group stays inside one host, and all groups of a rank have one
// size: a group is whole ranks with equal numbers of devices, or one rank is divided into whole groups.
// Groups are placed one after another. The next group is of the size with the largest share per placed device; in a
// tie, of the larger size. It takes the ranks with the smallest memory that is sufficient, of one kind of card if there
// are enough, in order of hosts and ranks. It never takes ranks if the remaining devices could then not be filled with
// groups of these sizes.
// Throws Error(kConfig), with a list of the hosts, if a size gets no group or a device is left over.
void place_sizes(LayoutSolution& solution, const std::vector<RankProbe>& ranks, const std::vector<RankMemory>& memory,
                 const LayoutConfig& config);

}  // namespace magister
