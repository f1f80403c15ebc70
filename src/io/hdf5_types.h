// HDF5 types, names of extents and file properties, for the code that writes layouts and the code that reads them.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>

#include "io/hdf5_handle.h"
#include "magister/io/results/results_file.h"

namespace magister {

// width: bytes of a string; unused for other types.
H5Type hdf5_type(ColumnType type, std::uint64_t width);
// "fixed", "samples", "rows": the attribute `extent` of a dataset.
const char* extent_name(ColumnSpec::Extent extent);
// HDF5's own lock on opening is off: a viewer that has a running job's file open must not make the job fail at its end,
// and file systems without flock would refuse every open. Our own lock is a file in the same folder (ResultsLock).
H5Properties file_access();
// Properties for files that are only read. The version bounds concern writing, but HDF5 below 2.0 also refuses to read
// newer files because of them (HDFGroup/hdf5#4849).
H5Properties read_access();
// Call it after a failed HDF5 call. If HDF5 does not know a format version in the file, returns the reason and the way
// out, to be appended to "cannot be opened "; empty: another reason.
std::string newer_format();
// The lock for calls of HDF5, whose libraries are mostly built for one thread. Reads of rows hold it, because any
// thread of a run may read.
std::mutex& hdf5_turn();

}  // namespace magister
