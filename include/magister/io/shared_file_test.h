// Tests whether a file system keeps bytes that ranks write next to each other. Flags, checksums and border rows of a
// results file share pages, and hosts that cache whole pages (NFS) could overwrite each other's. For `doctor`.
#pragma once

#include <string>

#include "magister/parallel/communicator.h"

namespace magister {

// Every rank reads the file's first pages and then, at the same time as the others, writes its bytes between theirs,
// opened and synced as results are. Returns "" or the problem on this rank. `path` must exist; its content is
// overwritten. Collective over world.
std::string test_adjacent_bytes(const Communicator& world, const std::string& path);

}  // namespace magister
