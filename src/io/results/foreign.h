// Results files of unknown origin, or from a damaged disk. HDF5's library trusts the bytes that it reads, and the
// versions on clusters crash on some invalid bytes. Commands that read such files for a user open them through this
// file.
#pragma once

#include <string>

#include "magister/io/results/reader.h"

namespace magister {

// Lets a child process read the file's metadata. If the child crashes or needs more than a minute of CPU time, this
// process throws Error(kData) instead of crashing. If no child can be started, nothing is tested. Local; not for ranks
// within a run.
void try_in_a_copy(const std::string& path);

// Opens such a file after try_in_a_copy().
ResultsReader open_foreign_results(const std::string& path);

}  // namespace magister
