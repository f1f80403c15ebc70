// MpioFile: the rows of a results file through HDF5's MPI driver, for file systems that are tuned by MPI-IO's hints (Lustre,
// GPFS). Each rank opens the file for itself (MPI_COMM_SELF): units are committed whenever one is ready, so nothing in the
// loop may be collective, and MPI_File_sync is. No metadata changes while rows are written, so the ranks' copies of it agree;
// what HDF5 writes on closing (96 bytes of superblock, seen with 1.10.8) are the bytes that stand there already.
// Neither HDF5 nor MPI is called from two threads: one thread of the rank uses an object of this class.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "io/hdf5_handle.h"
#include "io/results/layout.h"

namespace magister {

class MpioFile {
 public:
  // An empty file of this name, which must not exist: striping is fixed when a file is created. Mode as PosixFile's. Local.
  static void create(const std::string& path, const ResultsAccess& access);

  // Opens what write_layout made. Throws Error(kInputOutput).
  MpioFile(const std::string& path, const ResultsAccess& access);
  ~MpioFile() = default;
  MpioFile(const MpioFile&) = delete;
  MpioFile& operator=(const MpioFile&) = delete;

  // Whole rows of a column, checked by the caller.
  void write(const PlacedColumn& column, std::uint64_t first_row, std::span<const std::byte> data);
  void read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) const;
  void sync();   // H5Fflush, which ends in MPI_File_sync
  void close();  // told when it fails; the destructor tells nothing

 private:
  enum class Direction { kWrite, kRead };
  void transfer(Direction direction, const PlacedColumn& column, std::uint64_t first_row, void* data,
                std::uint64_t num_bytes) const;

  std::string path_;
  H5File file_;
  mutable std::map<std::string, H5Dataset> datasets_;  // after file_: closed before it
};

}  // namespace magister
