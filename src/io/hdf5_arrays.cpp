#include "magister/io/hdf5_arrays.h"

#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "io/hdf5_handle.h"
#include "io/hdf5_types.h"
#include "io/posix_file.h"
#include "magister/core/error.h"

namespace magister {
namespace {

std::vector<hsize_t> sizes_of(std::span<const std::uint64_t> sizes) { return {sizes.begin(), sizes.end()}; }

}  // namespace

struct Hdf5Arrays::Handles {
  struct Array {
    H5Dataset dataset;
    H5Type type;
  };
  ~Handles() {
    if (exists) ::unlink(creating.c_str());
  }
  std::string path, creating;
  bool exists = false;  // the file `creating`
  H5File file;
  std::vector<Array> arrays{};
};

void Hdf5Arrays::refuse_existing(const std::string& path) {
  struct stat status{};
  MAGISTER_CHECK(::lstat(path.c_str(), &status) != 0, ExitCode::kInputOutput,
                 "{}: exists (nothing is overwritten); give another name or move it away", printable(path));
}

Hdf5Arrays::Hdf5Arrays(const std::string& path) : handles_(std::make_unique<Handles>()) {
  handles_->path = path;
  handles_->creating = path + ".creating";
  const std::string& creating = handles_->creating;
  refuse_existing(path);
  struct stat status{};
  if (::lstat(creating.c_str(), &status) == 0 && S_ISREG(status.st_mode)) ::unlink(creating.c_str());
  // HDF5 would follow a link and give everybody read permission.
  const PosixFile made(creating, PosixFile::Access::kCreate);
  silence_hdf5();
  const H5Properties access = file_access();
  handles_->exists = true;
  handles_->file =
      H5File(MAGISTER_CHECK_HDF5(H5Fcreate(creating.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), creating));
}

Hdf5Arrays::~Hdf5Arrays() = default;

std::size_t Hdf5Arrays::add(const char* name, ColumnType type, std::span<const std::uint64_t> shape) {
  const std::string& path = handles_->creating;
  const std::vector<hsize_t> sizes = sizes_of(shape);
  const H5Space space(
      MAGISTER_CHECK_HDF5(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), path));
  H5Type stored = hdf5_type(type, 0);
  const H5Properties properties(MAGISTER_CHECK_HDF5(H5Pcreate(H5P_DATASET_CREATE), path));
  MAGISTER_CHECK_HDF5(H5Pset_obj_track_times(properties.get(), false), path);
  H5Dataset dataset(MAGISTER_CHECK_HDF5(
      H5Dcreate2(handles_->file.get(), name, stored.get(), space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
      path));
  handles_->arrays.push_back({std::move(dataset), std::move(stored)});
  return handles_->arrays.size() - 1;
}

void Hdf5Arrays::write(std::size_t array, std::span<const std::uint64_t> place, std::span<const std::uint64_t> count,
                       std::span<const std::byte> values) {
  const std::string& path = handles_->creating;
  const auto& [dataset, type] = handles_->arrays[array];
  const std::vector<hsize_t> begin = sizes_of(place), box = sizes_of(count);
  const H5Space space(MAGISTER_CHECK_HDF5(H5Dget_space(dataset.get()), path));
  const H5Space memory(MAGISTER_CHECK_HDF5(H5Screate_simple(static_cast<int>(box.size()), box.data(), nullptr), path));
  MAGISTER_CHECK_HDF5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, begin.data(), nullptr, box.data(), nullptr),
                      path);
  MAGISTER_CHECK_HDF5(H5Dwrite(dataset.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, values.data()), path);
}

void Hdf5Arrays::keep() {
  const std::string& creating = handles_->creating;
  handles_->arrays.clear();
  MAGISTER_CHECK(handles_->file.close(), ExitCode::kInputOutput,
                 "{}: closing failed: {} (the export is cut off); make room", printable(creating), hdf5_reason());
  PosixFile(creating).sync();
  refuse_existing(handles_->path);
  rename_durably(creating, handles_->path);
  handles_->exists = false;
}

}  // namespace magister
