// How columns look to HDF5, for the file that writes layouts and the one that reads them: types, names of extents, and
// the properties every file of ours is opened with.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>

#include "io/hdf5_handle.h"
#include "magister/io/results/results_file.h"

namespace magister {

// width: bytes of a string.
H5Type hdf5_type(ColumnType type, std::uint64_t width);
// "fixed", "samples", "rows": the attribute `extent` of a dataset.
const char* extent_name(ColumnSpec::Extent extent);
// HDF5's own lock on opening is off: a viewer that looks at a running job's file must not make its end fail, and file
// systems without flock would refuse every open. Our own lock stands beside the file (ResultsLock).
H5Properties file_access();
// The same for files that are only read. Bounds are for what is written; HDF5 below 2.0 also refuses to read newer files by them
// (HDFGroup/hdf5#4849).
H5Properties read_access();
// Behind a call that failed: why, where HDF5 does not know a version that stands in the file, with the way out, for behind "cannot be opened ";
// empty: for another reason.
std::string newer_format();
// Whose turn it is to call HDF5, whose libraries are mostly built for one thread: held by reads of rows, which any thread of a run asks for.
std::mutex& hdf5_turn();

}  // namespace magister
