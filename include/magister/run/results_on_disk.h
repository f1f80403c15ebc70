// Folders, earlier results and free space at the place where a task writes. Rank 0 decides and broadcasts to all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Returns <name>.running.h5, in which a task computes its units if it packs the final file from them at the end.
std::string packed_later_path(const std::string& results_path);
// Makes the folder and its parents. Collective over world.
void make_folder(const Communicator& world, const std::string& folder);
// Renames the file or folder at `path` to the first free name <path>.previous-N, N >= 1. Throws Error(kInputOutput).
// Local.
void put_path_aside(const std::string& path);
// True if both folders hold regular files of the same names and contents, and nothing else; false if one cannot be
// read. Local.
bool has_same_files(const std::string& folder, const std::string& other);
// Throws Error(kInputOutput) unless `path` exists, which belongs to the complete results. called: its name in the
// message. Local.
void require_side_file(const std::string& results_path, const std::string& path, const char* called,
                       const char* what_to_do);
// For --fresh: rank 0 puts aside the file or folder at each of these paths. Collective over world.
void put_aside(const Communicator& world, const std::vector<std::string>& paths);
// Returns the state of the results, which rank 0 reads from the disk. Collective over world.
ResultsFile::State state_everywhere(const Communicator& world, const std::string& results_path);
constexpr std::uint64_t kFreeSpaceMargin = 1 << 20;
// Refuses a plan that does not fit the file system with this margin. made_smaller_by: see TaskResults; empty if the
// file was already begun, because its size is fixed. Throws Error(kInputOutput). Collective over world.
void check_free_space(const Communicator& world, const std::string& folder, std::uint64_t bytes,
                      const std::string& made_smaller_by = "");
// Returns the free bytes for an unprivileged user at the place of results_path; its folder need not exist yet. Throws
// Error(kInputOutput) with the system's reason if the file system does not say it. Local.
std::uint64_t free_bytes_for(const std::string& results_path);
// Throws Error(kConfig) if the file belongs to another experiment, and names the difference; a task's keys have the
// prefix task_key. Collective over world.
void check_attributes_everywhere(const Communicator& world, const std::string& path, const Attributes& expected,
                                 const std::string& task_key);
// Removes the file at `path` if it exists and has these attributes; otherwise leaves it alone. Local.
void remove_if_ours(const std::string& path, const Attributes& expected);
// Returns the numbers of units, which rank 0 reads from the file. Collective over world.
UnitCounts unit_counts_everywhere(const Communicator& world, const std::string& path);

}  // namespace magister
