// The layout of a job whose groups have several sizes: which ranks of which host form groups of which size. A function of what the ranks
// report and of the experiment, as all of the layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout_solver.h"

namespace magister {

inline constexpr std::uint64_t kUnknownMemory = ~std::uint64_t{0};

// Of a rank: how many devices it has, and the least memory of one of them; kUnknownMemory on CPUs.
struct RankMemory {
  int devices = 1;
  std::uint64_t total_bytes = kUnknownMemory, free_bytes = kUnknownMemory;
  std::string cards;  // which they are: ranks of equal words have like ones
};

// Fills groups and places. The rule: a group stays inside one host, and a rank's groups have one size - whole ranks of equally many devices, or
// a rank that is divided whole. Group by group, the size with the most to do for each of its devices (share over devices) gets the next
// one, the larger of two; it takes the ranks with the least memory that suffices, of one kind of card where so many are there, in order of hosts and
// ranks, and no place that would leave devices which no groups of these sizes can fill. Throws Error(kConfig) with every host where a size gets no group or a device
// none.
void place_sizes(LayoutSolution& solution, const std::vector<RankProbe>& ranks, const std::vector<RankMemory>& memory,
                 const LayoutConfig& config);

}  // namespace magister
