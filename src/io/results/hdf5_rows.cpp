// Data is read with the type that the file declares, which read_layout() has found to be one of ours, so nothing is
// converted.
#include "io/results/hdf5_rows.h"

#include <algorithm>
#include <vector>

#include "io/hdf5_chunks.h"
#include "io/hdf5_types.h"
#include "magister/core/error.h"

namespace magister {
namespace {

// h5repack makes one chunk of a whole data set unless told otherwise.
constexpr std::uint64_t kMostChunk = std::uint64_t{1} << 30;
constexpr std::uint64_t kTextsAtOnce = 4096;

}  // namespace

struct Hdf5Rows::Column {
  H5Dataset dataset;
  H5Type type;
  H5Space space;
};

struct Hdf5Rows::File {
  std::string path;
  H5File file;
  std::map<std::string, Column> columns;
};

Hdf5Rows::Hdf5Rows(const std::string& path) : file_(std::make_unique<File>()) {
  const std::lock_guard turn(hdf5_turn());
  silence_hdf5();
  const H5Properties access = read_access();
  file_->path = path;
  file_->file = H5File(MAGISTER_READ_HDF5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), path));
}

Hdf5Rows::~Hdf5Rows() {
  const std::lock_guard turn(hdf5_turn());
  file_.reset();
}

// The caller holds hdf5_turn().
Hdf5Rows::Column& Hdf5Rows::opened(const PlacedColumn& column) {
  const std::string &name = column.spec.path, &path = file_->path;
  const auto [found, is_new] = file_->columns.try_emplace(name);
  Column& out = found->second;
  if (!is_new && out.dataset.get() >= 0) return out;
  const H5Dataset plain(MAGISTER_READ_HDF5(H5Dopen2(file_->file.get(), name.c_str(), H5P_DEFAULT), path));
  const H5Properties made(MAGISTER_READ_HDF5(H5Dget_create_plist(plain.get()), path));
  const int rank = column.spec.type == ColumnType::kUtf8 || column.spec.width == 0 ? 1 : 2;
  const std::vector<hsize_t> chunk = chunk_shape(made, rank, path);
  std::uint64_t kept = 0;
  if (!chunk.empty()) {
    const std::uint64_t across = rank == 1 ? 1 : (column.spec.width + chunk[1] - 1) / chunk[1];
    const std::uint64_t bytes = chunk_bytes(chunk, column.row_bytes() / (rank == 1 ? 1 : column.spec.width));
    MAGISTER_CHECK(bytes <= kMostChunk, ExitCode::kData,
                   "{}: dataset {} is packed in chunks of {} MiB (each that reads it would hold one in memory, and at "
                   "most {} MiB are); pack it in smaller ones, with `h5repack -l CHUNK=...` for example",
                   printable(path), printable(name), bytes >> 20, kMostChunk >> 20);
    kept = std::min(kMostChunk, bytes * std::min<std::uint64_t>(across, 1024));
  }
  const H5Properties access = keeping_chunks(kept, path);
  out.dataset = H5Dataset(MAGISTER_READ_HDF5(H5Dopen2(file_->file.get(), name.c_str(), access.get()), path));
  out.type = H5Type(MAGISTER_READ_HDF5(H5Dget_type(out.dataset.get()), path));
  out.space = H5Space(MAGISTER_READ_HDF5(H5Dget_space(out.dataset.get()), path));
  return out;
}

void Hdf5Rows::read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) {
  if (data.empty()) return;
  const std::lock_guard turn(hdf5_turn());
  const std::string& path = file_->path;
  Column& from = opened(column);
  const hsize_t start[2] = {first_row, 0}, count[2] = {data.size() / column.row_bytes(), column.spec.width};
  const bool one_dimension = column.spec.type == ColumnType::kUtf8 || column.spec.width == 0;
  MAGISTER_READ_HDF5(H5Sselect_hyperslab(from.space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr), path);
  const H5Space rows(MAGISTER_READ_HDF5(H5Screate_simple(one_dimension ? 1 : 2, count, nullptr), path));
  MAGISTER_READ_HDF5(
      H5Dread(from.dataset.get(), from.type.get(), rows.get(), from.space.get(), H5P_DEFAULT, data.data()), path);
}

void Hdf5Rows::for_each_text(const PlacedColumn& column, IndexRange rows,
                             const std::function<void(std::uint64_t, std::string_view)>& visit) {
  for (std::uint64_t first = rows.begin; first < rows.end; first += kTextsAtOnce) {
    const hsize_t start = first, count = std::min(kTextsAtOnce, rows.end - first);
    std::vector<std::string> texts(count);
    {
      const std::lock_guard turn(hdf5_turn());
      const std::string& path = file_->path;
      Column& from = opened(column);
      std::vector<char*> pointers(count, nullptr);
      MAGISTER_READ_HDF5(H5Sselect_hyperslab(from.space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), path);
      const H5Space some(MAGISTER_READ_HDF5(H5Screate_simple(1, &count, nullptr), path));
      void* const out = static_cast<void*>(pointers.data());
      MAGISTER_READ_HDF5(H5Dread(from.dataset.get(), from.type.get(), some.get(), from.space.get(), H5P_DEFAULT, out),
                         path);
      for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = pointers[i] == nullptr ? "" : pointers[i];
      H5Dvlen_reclaim(from.type.get(), some.get(), H5P_DEFAULT, out);
    }
    for (std::size_t i = 0; i < texts.size(); ++i) visit(first + i, texts[i]);
  }
}

}  // namespace magister
