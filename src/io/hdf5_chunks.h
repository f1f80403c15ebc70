// Data sets that are stored in chunks or through filters, as other programs write them: what reading them one row after the other needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5_handle.h"

namespace magister {

// Shape of the chunks, [rank]; nothing where the data set has none. made: its creation properties.
std::vector<hsize_t> chunk_shape(const H5Properties& made, int rank, const std::string& path);
// Throws Error(kData) where a filter is not in this library: plug-ins are not loaded (silence_hdf5()).
void require_filters(const H5Properties& made, const std::string& path, const std::string& name);
// Of a chunk of numbers of so many bytes each when it is unpacked; 2^63 at most.
std::uint64_t chunk_bytes(const std::vector<hsize_t>& chunk, std::uint64_t number_bytes);
// Access with so many bytes of chunks kept in memory, 1 MiB (HDF5's own) at least: a chunk that is not kept is unpacked again for each row.
H5Properties keeping_chunks(std::uint64_t bytes, const std::string& path);

}  // namespace magister
