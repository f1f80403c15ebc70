// A results file that came from elsewhere, or from a damaged disk: HDF5's library trusts what it reads, and versions that clusters have
// die on bytes that no program wrote. What reads such files for a user asks here first.
#pragma once

#include <string>

#include "magister/io/results/reader.h"

namespace magister {

// Lets a copy of this process read the file's metadata: when that dies, or needs minutes for it, this process throws Error(kData) and
// lives. Where no copy can be made the file is read as it is. Local; not for ranks within a run.
void try_in_a_copy(const std::string& path);

// A reader of such a file.
ResultsReader open_foreign_results(const std::string& path);

}  // namespace magister
