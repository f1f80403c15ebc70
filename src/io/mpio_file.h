// MpioFile: rows of a results file through HDF5's MPI driver, for file systems that need MPI-IO hints (Lustre, GPFS).
// Each rank opens the file alone (MPI_COMM_SELF): MPI_File_sync is collective, but a unit is committed as soon as it is
// ready, so nothing in the loop may involve other ranks. No metadata changes while rows are written, so the ranks'
// copies of it agree; on closing HDF5 rewrites the same bytes (96 bytes of superblock, seen with 1.10.8).
// Neither HDF5 nor MPI may be called from two threads: one thread of the rank uses an object of this class.
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
  // Creates an empty file of this name, which must not exist: striping is fixed when a file is created. Mode as
  // PosixFile's. Local.
  static void create(const std::string& path, const ResultsAccess& access);

  // Opens a file that write_layout created. Throws Error(kInputOutput).
  MpioFile(const std::string& path, const ResultsAccess& access);
  ~MpioFile() = default;
  MpioFile(const MpioFile&) = delete;
  MpioFile& operator=(const MpioFile&) = delete;

  // Whole rows of a column; the caller has checked them.
  void write(const PlacedColumn& column, std::uint64_t first_row, std::span<const std::byte> data);
  void read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) const;
  void sync();   // H5Fflush, which ends in MPI_File_sync
  void close();  // throws if it fails; the destructor is silent

 private:
  enum class Direction { kWrite, kRead };
  void transfer(Direction direction, const PlacedColumn& column, std::uint64_t first_row, void* data,
                std::uint64_t num_bytes) const;

  std::string path_;
  H5File file_;
  mutable std::map<std::string, H5Dataset> datasets_;  // declared after file_, so destroyed before it
};

}  // namespace magister
