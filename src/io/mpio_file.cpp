// Independent transfers of contiguous rows in pieces. Each piece is read back and compared, because an MPI-IO library
// may report a short write as complete (Open MPI's OMPIO on a full disk), and data that is not on disk must never be
// committed.
#include "io/mpio_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "io/hdf5_types.h"
#include "io/posix_file.h"
#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/parallel/mpi_hints.h"

namespace magister {
namespace {

constexpr std::uint64_t kTransferBytes = 4 << 20;

// file_access() with the MPI driver instead of the POSIX one.
H5Properties mpio_access(const MpiHints& hints, const std::string& path) {
  H5Properties access = file_access();
  const MPI_Comm self = *static_cast<const MPI_Comm*>(MpiHints::this_process());
  MAGISTER_CHECK_HDF5(H5Pset_fapl_mpio(access.get(), self, *static_cast<const MPI_Info*>(hints.info())), path);
  return access;
}

}  // namespace

void MpioFile::create(const std::string& path, const ResultsAccess& access) {
  silence_hdf5();
  const MpiHints hints(access.hints);
  const H5Properties properties = mpio_access(hints, path);
  struct stat status{};
  MAGISTER_CHECK(::lstat(path.c_str(), &status) != 0, ExitCode::kInputOutput,
                 "{}: the path exists, perhaps as a symbolic link (the file must be new, never reached through a "
                 "link); move it away",
                 printable(path));
  H5File file(MAGISTER_CHECK_HDF5(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, properties.get()), path));
  MAGISTER_CHECK(file.close(), ExitCode::kInputOutput,
                 "{}: closing the new file failed: {} (it is not whole); check the disk", printable(path),
                 hdf5_reason());
  // MPI-IO chooses its own file mode; ours is 0640, restricted by the umask.
  if (::stat(path.c_str(), &status) != 0 || ::chmod(path.c_str(), status.st_mode & 0640) != 0)
    fail_io(path, "setting the mode", errno);
}

MpioFile::MpioFile(const std::string& path, const ResultsAccess& access) : path_(path) {
  silence_hdf5();
  const MpiHints hints(access.hints);
  const H5Properties properties = mpio_access(hints, path);
  file_ = H5File(MAGISTER_CHECK_HDF5(H5Fopen(path.c_str(), H5F_ACC_RDWR, properties.get()), path));
}

void MpioFile::transfer(Direction direction, const PlacedColumn& column, std::uint64_t first_row, void* data,
                        std::uint64_t num_bytes) const {
  const std::lock_guard turn(hdf5_turn());
  H5Dataset& dataset = datasets_[column.spec.path];
  if (dataset.get() < 0)
    dataset = H5Dataset(MAGISTER_CHECK_HDF5(H5Dopen2(file_.get(), column.spec.path.c_str(), H5P_DEFAULT), path_));
  const bool one_dimension = column.spec.type == ColumnType::kUtf8 || column.spec.width == 0;
  const hsize_t start[2] = {first_row, 0}, count[2] = {num_bytes / column.row_bytes(), column.spec.width};
  const H5Space in_file(MAGISTER_CHECK_HDF5(H5Dget_space(dataset.get()), path_));
  MAGISTER_CHECK_HDF5(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, start, nullptr, count, nullptr), path_);
  const H5Space in_memory(MAGISTER_CHECK_HDF5(H5Screate_simple(one_dimension ? 1 : 2, count, nullptr), path_));
  const H5Type type = hdf5_type(column.spec.type, column.spec.width);
  const herr_t result = direction == Direction::kWrite
                            ? H5Dwrite(dataset.get(), type.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, data)
                            : H5Dread(dataset.get(), type.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, data);
  MAGISTER_CHECK(result >= 0, ExitCode::kInputOutput,
                 "{}: {} {} bytes of {} through MPI-IO failed: {}, {} bytes are free (committed "
                 "units are safe); check disk and hints (output.hints) and run the same command again",
                 printable(path_), direction == Direction::kWrite ? "writing" : "reading", num_bytes, column.spec.path,
                 hdf5_reason(), free_bytes_at(path_));
}

void MpioFile::write(const PlacedColumn& column, std::uint64_t first_row, std::span<const std::byte> data) {
  const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, kTransferBytes / column.row_bytes());
  std::vector<std::byte> back;
  for (std::uint64_t row = first_row; !data.empty(); row += rows_a_piece) {
    const auto piece = data.first(std::min<std::uint64_t>(data.size(), rows_a_piece * column.row_bytes()));
    if (fail_point("results.write.data"))
      fail_io(path_, fmt::format("writing {} bytes of {}", piece.size(), column.spec.path), ENOSPC);
    transfer(Direction::kWrite, column, row, const_cast<std::byte*>(piece.data()), piece.size());
    back.resize(piece.size());
    transfer(Direction::kRead, column, row, back.data(), back.size());
    MAGISTER_CHECK(
        std::memcmp(back.data(), piece.data(), piece.size()) == 0, ExitCode::kInputOutput,
        "{}: MPI-IO wrote {} bytes of {} and reported no error, but they are not in the file, {} bytes are free "
        "(committed units are safe); free space or set output.driver to pwrite, and run the same command again",
        printable(path_), piece.size(), column.spec.path, free_bytes_at(path_));
    data = data.subspan(piece.size());
  }
}

void MpioFile::read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) const {
  const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, kTransferBytes / column.row_bytes());
  for (std::uint64_t row = first_row; !data.empty(); row += rows_a_piece) {
    const auto piece = data.first(std::min<std::uint64_t>(data.size(), rows_a_piece * column.row_bytes()));
    transfer(Direction::kRead, column, row, piece.data(), piece.size());
    data = data.subspan(piece.size());
  }
}

void MpioFile::sync() {
  const std::lock_guard turn(hdf5_turn());
  MAGISTER_CHECK(H5Fflush(file_.get(), H5F_SCOPE_LOCAL) >= 0, ExitCode::kInputOutput,
                 "{}: MPI_File_sync failed: {} (committed units are "
                 "safe); check the disk and run the same command again",
                 printable(path_), hdf5_reason());
}

void MpioFile::close() {
  datasets_.clear();
  MAGISTER_CHECK(file_.close(), ExitCode::kInputOutput,
                 "{}: closing it failed: {} (committed units are safe); check the disk and run "
                 "the same command again",
                 printable(path_), hdf5_reason());
}

}  // namespace magister
