// Who has which device, group by group: for `plan`, and in run.jsonl. Local.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

// A line a group, "  group 2: rank 4, cuda:4,5 on node0 (H100-80GB, ranks 4 and 5)"; rank: its first. Of many groups the first ones, and one line for
// all others.
std::string group_lines(const std::vector<DeviceRow>& devices);

// [{rank, host, group, shard, device, index, uuid, pci}], the last three of GPUs alone. job_ranks: of each rank of the table, its number in the job.
nlohmann::ordered_json device_rows(const std::vector<DeviceRow>& devices, const std::vector<std::uint64_t>& job_ranks);

}  // namespace magister
