// MemoryParts: an itemised memory demand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace magister {

using MemoryParts = std::vector<std::pair<std::string, std::uint64_t>>;  // names and bytes, in order

std::uint64_t sum_of(const MemoryParts& parts);

// "weights 1.2 GiB, activations 30.5 MiB"
std::string describe(const MemoryParts& parts);

}  // namespace magister
