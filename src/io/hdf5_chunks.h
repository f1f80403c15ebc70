// Data sets stored in chunks or through filters by other programs: functions to read such data row by row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5_handle.h"

namespace magister {

// Shape of the chunks, [rank]; empty if the data set has none. made: its creation properties.
std::vector<hsize_t> chunk_shape(const H5Properties& made, int rank, const std::string& path);
// Throws Error(kData) if this HDF5 library lacks one of the filters: plug-ins are not loaded (silence_hdf5()).
void require_filters(const H5Properties& made, const std::string& path, const std::string& name);
// Bytes of an unpacked chunk of numbers of number_bytes each; 2^63 at most.
std::uint64_t chunk_bytes(const std::vector<hsize_t>& chunk, std::uint64_t number_bytes);
// Access properties with a chunk cache of `bytes`, at least 1 MiB (HDF5's default). A chunk that is not cached is
// unpacked again for each row.
H5Properties keeping_chunks(std::uint64_t bytes, const std::string& path);

}  // namespace magister
