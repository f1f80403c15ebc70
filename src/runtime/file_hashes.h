// sha256 of files: several at a time, and reading in parallel with hashing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/runtime/stop.h"

namespace magister {

// Hashes in hex, in the order of the paths. One thread hashes a file, since SHA-256 is sequential; so the largest file
// bounds the time, and the largest files are hashed first. Spare threads read ahead. threads: >= 1, including the
// calling one; fewer are used if the system starts no more. poll is called on the calling thread only; if it returns
// true, hashing ends early and the hashes have no meaning. Throws Error(kInputOutput) for a file that cannot be read or
// was written meanwhile; for several the error of the first. Local.
std::vector<std::string> hash_files(const std::vector<std::string>& paths, int threads, const StopPoll& poll);

// For each file the rank that hashes it: files go by decreasing size to the rank with the fewest bytes so far; `order`
// decides between ranks with equally many bytes.
std::vector<int> divide_by_bytes(const std::vector<std::uint64_t>& bytes, const std::vector<int>& order);

}  // namespace magister
