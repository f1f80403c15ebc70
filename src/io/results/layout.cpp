// Creates the frozen metadata with the HDF5 library. Datasets are contiguous, allocated early and never filled, so the
// file is sparse and made in milliseconds. Object times are off, so equal specs give equal bytes. The file has the
// oldest format, which every HDF5 since 1.6 reads. It has no checksums over metadata, so setting `complete` changes one
// byte and a kill cannot leave it half-written; but an attribute holds at most 64 KiB. A longer experiment is a
// dataset, /experiment.
#include "io/results/layout.h"

#include <algorithm>

#include "io/hdf5_types.h"
#include "io/posix_file.h"
#include "magister/core/checked.h"
#include "magister/core/sha256.h"

namespace magister {
namespace {

constexpr std::size_t kMaxAttributeBytes = 64'000;

H5Properties without_times(hid_t kind) {
  H5Properties properties(H5Pcreate(kind));
  H5Pset_obj_track_times(properties.get(), false);
  return properties;
}

H5Properties contiguous() {
  H5Properties creation = without_times(H5P_DATASET_CREATE);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  return creation;
}

void write_text_attribute(hid_t object, const std::string& name, const std::string& text, const std::string& path) {
  MAGISTER_CHECK(text.size() <= kMaxAttributeBytes, ExitCode::kConfig,
                 "{}: attribute {} has {} bytes, {} fit (HDF5's own limit); shorten what the experiment says there",
                 printable(path), name, text.size(), kMaxAttributeBytes);
  const H5Type type = hdf5_type(ColumnType::kUtf8, text.size());
  const H5Space scalar(H5Screate(H5S_SCALAR));
  const H5Attribute attribute(
      MAGISTER_CHECK_HDF5(H5Acreate2(object, name.c_str(), type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT), path));
  const std::string padded = text.empty() ? std::string(1, '\0') : text;
  MAGISTER_CHECK_HDF5(H5Awrite(attribute.get(), type.get(), padded.data()), path);
}

template <typename T>
void write_number_attribute(hid_t object, const std::string& name, T value, hid_t file_type, hid_t memory_type,
                            const std::string& path) {
  const H5Space scalar(H5Screate(H5S_SCALAR));
  const H5Attribute attribute(
      MAGISTER_CHECK_HDF5(H5Acreate2(object, name.c_str(), file_type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT), path));
  MAGISTER_CHECK_HDF5(H5Awrite(attribute.get(), memory_type, &value), path);
}

void write_attribute(hid_t object, const std::string& name, const AttributeValue& value, const std::string& path) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    write_text_attribute(object, name, *text, path);
  } else if (const auto* number = std::get_if<std::uint64_t>(&value)) {
    write_number_attribute(object, name, *number, H5T_STD_U64LE, H5T_NATIVE_UINT64, path);
  } else {
    write_number_attribute(object, name, std::get<std::uint8_t>(value), H5T_STD_U8LE, H5T_NATIVE_UINT8, path);
  }
}

// Writes one string of fixed length that is too long for an attribute.
void write_long_text(hid_t file, const std::string& name, const std::string& text, const std::string& path) {
  const H5Type type = hdf5_type(ColumnType::kUtf8, text.size());
  const H5Space scalar(H5Screate(H5S_SCALAR));
  const H5Properties creation = contiguous();
  const H5Dataset dataset(MAGISTER_CHECK_HDF5(
      H5Dcreate2(file, name.c_str(), type.get(), scalar.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), path));
  MAGISTER_CHECK_HDF5(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), path);
  write_text_attribute(dataset.get(), "comment", "the root attribute of this name, too long for an attribute", path);
}

void create_dataset(hid_t file, const ColumnSpec& column, const std::string& path) {
  const H5Type type = hdf5_type(column.type, column.width);
  const hsize_t dimensions[2] = {column.num_rows, column.width};
  const int rank = column.type == ColumnType::kUtf8 || column.width == 0 ? 1 : 2;
  const H5Space space(MAGISTER_CHECK_HDF5(H5Screate_simple(rank, dimensions, nullptr), path));
  const H5Properties creation = contiguous();
  // Descriptors of strings must begin as zero: HDF5 reads a descriptor before it overwrites it.
  if (column.type == ColumnType::kText) H5Pset_fill_time(creation.get(), H5D_FILL_TIME_IFSET);
  const H5Dataset dataset(MAGISTER_CHECK_HDF5(
      H5Dcreate2(file, column.path.c_str(), type.get(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), path));
  write_text_attribute(dataset.get(), "comment", column.comment, path);
  if (!column.units.empty()) write_text_attribute(dataset.get(), "units", column.units, path);
  write_text_attribute(dataset.get(), "extent", extent_name(column.extent), path);
}

std::vector<ColumnSpec> with_commit(const ResultsSpec& spec) {
  using Extent = ColumnSpec::Extent;
  auto columns = spec.columns;
  const std::uint64_t u = spec.num_units;
  columns.push_back({"/commit/unit_begin", ColumnType::kU64, u + 1, 0,
                     "samples of unit i are unit_begin[i] .. unit_begin[i+1]", "", Extent::kFixed});
  columns.push_back({"/commit/done", ColumnType::kU8, u, 0, "1 where the unit is committed", "", Extent::kFixed});
  columns.push_back(
      {"/commit/crc32c", ColumnType::kU32, u, 0,
       "CRC-32C of the unit's bytes: its samples in the datasets of samples, then its rows in the datasets of "
       "rows, each in the order of creation (attribute extent; root attribute columns); of a string of any length "
       "its length as u32 and its bytes",
       "", Extent::kFixed});
  columns.push_back(
      {"/commit/plan_crc32c", ColumnType::kU32, 1, 0,
       "CRC-32C of the fixed datasets outside /commit and of /commit/unit_begin, in the order of creation", "",
       Extent::kFixed});
  if (spec.checks_inputs) {
    columns.push_back({kInputChecksums, ColumnType::kU32, u, 0,
                       "CRC-32C of what unit i is computed from, as planning wrote it: its bytes in the datasets of "
                       "/samples and /tokens, in the order of crc32c",
                       "", Extent::kFixed});
  }
  return columns;
}

// The default plot of H5Web, silx and nexpy. They show only long_name as the axis' label and title, so it contains name
// and units.
void create_default_plot(hid_t file, const ColumnSpec& column, const std::string& path) {
  const H5Properties group_creation = without_times(H5P_GROUP_CREATE);
  const H5Group group(
      MAGISTER_CHECK_HDF5(H5Gcreate2(file, "/plot", H5P_DEFAULT, group_creation.get(), H5P_DEFAULT), path));
  const std::string name = column.path.substr(column.path.rfind('/') + 1);
  MAGISTER_CHECK_HDF5(H5Lcreate_soft(column.path.c_str(), group.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), path);
  write_text_attribute(group.get(), "NX_class", "NXdata", path);
  write_text_attribute(group.get(), "signal", name, path);
  write_text_attribute(file, "default", "plot", path);
  const H5Dataset signal(MAGISTER_CHECK_HDF5(H5Dopen2(file, column.path.c_str(), H5P_DEFAULT), path));
  const std::string label = column.units.empty() ? name : name + " (" + column.units + ")";
  write_text_attribute(signal.get(), "long_name", label + ": " + column.comment, path);
}

// The file is created first with our own mode and flags, because HDF5 would follow a symbolic link and give everybody
// read permission.
H5File create_file(const std::string& path, bool is_made) {
  silence_hdf5();
  const PosixFile made(path, is_made ? PosixFile::Access::kReadWrite : PosixFile::Access::kCreate);
  const H5Properties creation = without_times(H5P_FILE_CREATE);
  const H5Properties access = file_access();
  return H5File(MAGISTER_CHECK_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), path));
}

}  // namespace

std::size_t size_of(ColumnType type) {
  switch (type) {
    case ColumnType::kU8:
    case ColumnType::kUtf8:
      return 1;
    case ColumnType::kF16:
      return 2;
    case ColumnType::kU64:
      return 8;
    case ColumnType::kText:
      return 16;
    default:
      return 4;
  }
}

std::uint64_t PlacedColumn::row_bytes() const {
  return checked_multiply(std::max<std::uint64_t>(spec.width, 1), size_of(spec.type), "bytes of a row");
}

std::uint64_t results_bytes(const ResultsSpec& spec) {
  std::uint64_t bytes = 0;
  for (const ColumnSpec& column : with_commit(spec)) {
    const PlacedColumn placed{column, 0};
    bytes = checked_add(bytes, checked_multiply(column.num_rows, placed.row_bytes(), column.path), column.path);
    bytes = checked_add(bytes, column.heap_bytes, column.path);
  }
  for (const auto& [name, value] : spec.attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) bytes = checked_add(bytes, text->size(), name);
  }
  return bytes;
}

std::string layout_sha256(const std::vector<PlacedColumn>& columns) {
  std::string text;
  for (const PlacedColumn& c : columns) {
    // A string of 0 bytes is stored as one byte.
    const std::uint64_t width =
        c.spec.type == ColumnType::kUtf8 ? std::max<std::uint64_t>(c.spec.width, 1) : c.spec.width;
    text += fmt::format("{} {} {} {} {}\n", c.spec.path, static_cast<int>(c.spec.type), c.spec.num_rows, width,
                        extent_name(c.spec.extent));
  }
  return sha256_hex(text);
}

void write_layout(const std::string& path, const ResultsSpec& spec, bool is_made) {
  H5File file = create_file(path, is_made);
  std::vector<std::string> groups;
  std::vector<PlacedColumn> columns;
  std::string order;
  for (const ColumnSpec& column : with_commit(spec)) {
    const std::string group = column.path.substr(0, column.path.rfind('/'));
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
      const H5Properties group_creation = without_times(H5P_GROUP_CREATE);
      const H5Group made(MAGISTER_CHECK_HDF5(
          H5Gcreate2(file.get(), group.c_str(), H5P_DEFAULT, group_creation.get(), H5P_DEFAULT), path));
      groups.push_back(group);
    }
    create_dataset(file.get(), column, path);
    columns.push_back({column, 0});
    order += (order.empty() ? "" : " ") + column.path;
  }
  for (const auto& [name, value] : spec.attributes) {
    const auto* text = std::get_if<std::string>(&value);
    const bool is_long = name == kLongAttribute && text != nullptr && text->size() > kMaxAttributeBytes;
    if (is_long)
      write_long_text(file.get(), name, *text, path);
    else
      write_attribute(file.get(), name, value, path);
  }
  write_attribute(file.get(), "complete", std::uint8_t{0}, path);
  write_text_attribute(file.get(), "columns", order, path);
  write_text_attribute(file.get(), "layout_sha256", layout_sha256(columns), path);
  for (const ColumnSpec& column : spec.columns) {
    if (column.path == spec.default_plot_column) create_default_plot(file.get(), column, path);
  }
  MAGISTER_CHECK(file.close(), ExitCode::kInputOutput,
                 "{}: closing the new file failed: {} (it is not whole); check the disk", printable(path),
                 hdf5_reason());
}

void write_complete(const std::string& path) {
  silence_hdf5();
  const H5Properties access = file_access();
  H5File file(MAGISTER_CHECK_HDF5(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), path));
  {
    const H5Attribute attribute(MAGISTER_CHECK_HDF5(H5Aopen(file.get(), "complete", H5P_DEFAULT), path));
    const std::uint8_t one = 1;
    MAGISTER_CHECK_HDF5(H5Awrite(attribute.get(), H5T_NATIVE_UINT8, &one), path);
  }
  MAGISTER_CHECK(file.close(), ExitCode::kInputOutput,
                 "{}: closing the file failed (complete may not be set); check the "
                 "disk and run the same command again",
                 printable(path));
}

}  // namespace magister
