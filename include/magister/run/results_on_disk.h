// What stands on disk where a task wants to write: folders, earlier results, room. Decided by rank 0, told to all.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Where a task works whose final file is packed from it at the end: <name>.running.h5.
std::string packed_later_path(const std::string& results_path);
// Makes the folder and its parents. Collective over world.
void make_folder(const Communicator& world, const std::string& folder);
// Renames what stands at `path` to the first free name <path>.previous-N, N >= 1. Throws Error(kInputOutput). Local.
void put_path_aside(const std::string& path);
// Whether both folders hold regular files of the same names and contents, and nothing else. Local.
bool has_same_files(const std::string& folder, const std::string& other);
// Error(kInputOutput) unless `path`, which belongs to the complete results and is called this, is there. Local.
void require_beside(const std::string& results_path, const std::string& path, const char* called,
                    const char* what_to_do);
// --fresh: rank 0 puts aside what stands at each of these paths. Collective over world.
void put_aside(const Communicator& world, const std::vector<std::string>& paths);
// Rank 0's look at the disk. Collective over world.
ResultsFile::State state_everywhere(const Communicator& world, const std::string& results_path);
constexpr std::uint64_t kFreeSpaceMargin = 1 << 20;
// Refuses a plan that does not fit the file system, with this margin. made_smaller_by: as TaskResults has it; empty where a file that was
// begun has its size. Collective over world.
void check_free_space(const Communicator& world, const std::string& folder, std::uint64_t bytes,
                      const std::string& made_smaller_by = "");
// Free bytes for an unprivileged user where results_path would be made; its folder need not exist yet. Local.
std::uint64_t free_bytes_for(const std::string& results_path);
// A file that belongs to another experiment is Error(kConfig) naming what differs, a task's keys behind task_key. Collective over world.
void check_attributes_everywhere(const Communicator& world, const std::string& path, const Attributes& expected,
                                 const std::string& task_key);
// Removes the file at `path` when it is there and its attributes are these; else leaves it alone. Local.
void remove_if_ours(const std::string& path, const Attributes& expected);
// Rank 0's look into the file. Collective over world.
UnitCounts unit_counts_everywhere(const Communicator& world, const std::string& path);

}  // namespace magister
