// sha256 of files, several at once, and reading beside hashing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/runtime/stop.h"

namespace magister {

// In hex, by the place of the path. A file is hashed by one thread, for SHA-256 is a chain: the largest file bounds the time, and the largest begin
// first. Threads that no file needs read ahead of the hashing ones. threads: >= 1, the calling one included; fewer where the system starts no more.
// poll is asked on the calling thread alone; ends early when it says so: the hashes mean nothing then. Throws Error(kInputOutput) for a file that
// cannot be read or was written to meanwhile, of several for the first. Local.
std::vector<std::string> hash_files(const std::vector<std::string>& paths, int threads, const StopPoll& poll);

// Which rank hashes which of the files, by file: the largest first, each to the rank with the fewest bytes so far; `order` says which of ranks with
// equally many comes first.
std::vector<int> divide_by_bytes(const std::vector<std::uint64_t>& bytes, const std::vector<int>& order);

}  // namespace magister
