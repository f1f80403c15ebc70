// The devices of each group, for `plan` and for run.jsonl. Local.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

// One line for each group, "  group 2: rank 4, cuda:4,5 on node0 (H100-80GB, ranks 4 and 5)"; "rank" is its first rank.
// If there are many groups, only the first ones have a line of their own, and one line covers all others.
std::string group_lines(const std::vector<DeviceRow>& devices);

// [{rank, host, group, shard, device, index, uuid, pci}]; only GPUs have the last three. job_ranks: for each rank of
// the table, its number in the job.
nlohmann::ordered_json device_rows(const std::vector<DeviceRow>& devices, const std::vector<std::uint64_t>& job_ranks);

}  // namespace magister
