#include "io/hdf5_chunks.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

std::vector<hsize_t> chunk_shape(const H5Properties& made, int rank, const std::string& path) {
  std::vector<hsize_t> chunk;
  if (H5Pget_layout(made.get()) != H5D_CHUNKED) return chunk;
  chunk.resize(static_cast<std::size_t>(rank));
  MAGISTER_READ_HDF5(H5Pget_chunk(made.get(), rank, chunk.data()), path);
  return chunk;
}

void require_filters(const H5Properties& made, const std::string& path, const std::string& name) {
  const int count = MAGISTER_READ_HDF5(H5Pget_nfilters(made.get()), path);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t num_values = 0;
    char text[64] = "";
    const H5Z_filter_t id =
        H5Pget_filter2(made.get(), static_cast<unsigned>(i), &flags, &num_values, nullptr, sizeof text, text, &config);
    MAGISTER_CHECK(id >= 0 && H5Zfilter_avail(id) > 0, ExitCode::kData,
                   "{}: {} is packed by the filter {} ({}), which is not here (HDF5's own gzip, shuffle and szip are "
                   "read); store it with gzip",
                   printable(path), printable(name), id, printable(text, 60));
  }
}

std::uint64_t chunk_bytes(const std::vector<hsize_t>& chunk, std::uint64_t number_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  std::uint64_t bytes = number_bytes;
  for (const hsize_t length : chunk) bytes = length != 0 && bytes > kMost / length ? kMost : bytes * length;
  return bytes;
}

H5Properties keeping_chunks(std::uint64_t bytes, const std::string& path) {
  H5Properties access(MAGISTER_READ_HDF5(H5Pcreate(H5P_DATASET_ACCESS), path));
  MAGISTER_READ_HDF5(
      H5Pset_chunk_cache(access.get(), 12'421, std::max<std::uint64_t>(bytes, 1 << 20), H5D_CHUNK_CACHE_W0_DEFAULT),
      path);
  return access;
}

}  // namespace magister
