// What stands on disk where a task wants to write: folders, earlier results, room. Decided by rank 0, told to all.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/results_file.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Makes the folder and its parents. Collective over world.
void make_folder(const Communicator& world, const std::string& folder);
// --fresh: X.h5 and X.h5.partial become X.h5.previous-N, X.h5.partial.previous-N with the first free N >= 1.
// Collective over world.
void put_aside(const Communicator& world, const std::string& results_path);
// Rank 0's look at the disk. Collective over world.
ResultsFile::State state_everywhere(const Communicator& world, const std::string& results_path);
// Refuses a plan that does not fit the file system, with a margin of 1 MiB. Collective over world.
void check_free_space(const Communicator& world, const std::string& folder, std::uint64_t bytes);
// Free bytes for an unprivileged user where results_path would be made; its folder need not exist yet. Local.
std::uint64_t free_bytes_for(const std::string& results_path);
// A complete file that belongs to another experiment is Error(kConfig) naming what differs. Collective over world.
void check_complete(const Communicator& world, const std::string& results_path,
                    const std::vector<std::pair<std::string, AttributeValue>>& expected);

}  // namespace magister
