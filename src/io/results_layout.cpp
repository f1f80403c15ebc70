// Creating and reading the frozen metadata with the HDF5 library. Contiguous datasets, allocated early and never filled:
// the file is sparse and made in milliseconds. Object times are off, so equal specs give equal bytes.
#include "io/results_layout.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "io/hdf5_handle.h"
#include "magister/core/checked.h"

namespace magister {
namespace {

H5Type hdf5_type(ColumnType type, std::uint64_t width) {
  switch (type) {
    case ColumnType::kU8: return H5Type(H5Tcopy(H5T_STD_U8LE));
    case ColumnType::kI32: return H5Type(H5Tcopy(H5T_STD_I32LE));
    case ColumnType::kU32: return H5Type(H5Tcopy(H5T_STD_U32LE));
    case ColumnType::kU64: return H5Type(H5Tcopy(H5T_STD_U64LE));
    case ColumnType::kF32: return H5Type(H5Tcopy(H5T_IEEE_F32LE));
    case ColumnType::kF16: {
      // IEEE half: sign 15, 5 bits of exponent from 10 with bias 15, 10 bits of mantissa.
      H5Type half(H5Tcopy(H5T_IEEE_F32LE));
      H5Tset_fields(half.get(), 15, 10, 5, 0, 10);
      H5Tset_size(half.get(), 2);
      H5Tset_ebias(half.get(), 15);
      return half;
    }
    case ColumnType::kUtf8: {
      H5Type text(H5Tcopy(H5T_C_S1));
      H5Tset_size(text.get(), std::max<std::uint64_t>(width, 1));
      H5Tset_strpad(text.get(), H5T_STR_NULLPAD);
      H5Tset_cset(text.get(), H5T_CSET_UTF8);
      return text;
    }
  }
  fail(ExitCode::kInternal, "column type {} is unknown (a case is missing); report this", static_cast<int>(type));
}

void write_text_attribute(hid_t object, const std::string& name, const std::string& text, const std::string& path) {
  const H5Type type = hdf5_type(ColumnType::kUtf8, text.size());
  const H5Space scalar(H5Screate(H5S_SCALAR));
  const H5Attribute attribute(MAGISTER_CHECK_HDF5(
      H5Acreate2(object, name.c_str(), type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT), path));
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

H5Properties without_times(hid_t kind) {
  H5Properties properties(H5Pcreate(kind));
  H5Pset_obj_track_times(properties.get(), false);
  return properties;
}

const char* extent_name(ColumnSpec::Extent extent) {
  switch (extent) {
    case ColumnSpec::Extent::kFixed: return "fixed";
    case ColumnSpec::Extent::kSamples: return "samples";
    case ColumnSpec::Extent::kRows: return "rows";
  }
  return "?";
}

void create_dataset(hid_t file, const ColumnSpec& column, const std::string& path) {
  const bool text = column.type == ColumnType::kUtf8;
  const H5Type type = hdf5_type(column.type, column.width);
  const hsize_t dimensions[2] = {column.num_rows, column.width};
  const int rank = text || column.width == 0 ? 1 : 2;
  const H5Space space(MAGISTER_CHECK_HDF5(H5Screate_simple(rank, dimensions, nullptr), path));
  const H5Properties creation = without_times(H5P_DATASET_CREATE);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
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
  columns.push_back({"/commit/crc32c", ColumnType::kU32, u, 0,
                     "CRC-32C of the unit's bytes: /samples/key and /samples/source_index of its samples, then every "
                     "column of its rows, in the order of creation", "", Extent::kFixed});
  return columns;
}

// What H5Web, silx and nexpy draw on opening.
void create_default_plot(hid_t file, const std::string& column, const std::string& path) {
  const H5Properties group_creation = without_times(H5P_GROUP_CREATE);
  const H5Group group(MAGISTER_CHECK_HDF5(H5Gcreate2(file, "/plot", H5P_DEFAULT, group_creation.get(), H5P_DEFAULT), path));
  const std::string name = column.substr(column.rfind('/') + 1);
  MAGISTER_CHECK_HDF5(H5Lcreate_soft(column.c_str(), group.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), path);
  write_text_attribute(group.get(), "NX_class", "NXdata", path);
  write_text_attribute(group.get(), "signal", name, path);
  write_text_attribute(file, "default", "plot", path);
}

}  // namespace

std::size_t size_of(ColumnType type) {
  switch (type) {
    case ColumnType::kU8: case ColumnType::kUtf8: return 1;
    case ColumnType::kF16: return 2;
    case ColumnType::kU64: return 8;
    default: return 4;
  }
}

std::uint64_t PlacedColumn::row_bytes() const {
  return checked_multiply(std::max<std::uint64_t>(spec.width, 1), size_of(spec.type), "bytes of a row");
}

void write_layout(const std::string& path, const ResultsSpec& spec) {
  silence_hdf5();
  const H5Properties creation = without_times(H5P_FILE_CREATE);
  H5File file(MAGISTER_CHECK_HDF5(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.get(), H5P_DEFAULT), path));
  std::vector<std::string> groups;
  for (const ColumnSpec& column : with_commit(spec)) {
    const std::string group = column.path.substr(0, column.path.rfind('/'));
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
      const H5Properties group_creation = without_times(H5P_GROUP_CREATE);
      const H5Group made(
          MAGISTER_CHECK_HDF5(H5Gcreate2(file.get(), group.c_str(), H5P_DEFAULT, group_creation.get(), H5P_DEFAULT), path));
      groups.push_back(group);
    }
    create_dataset(file.get(), column, path);
  }
  for (const auto& [name, value] : spec.attributes) write_attribute(file.get(), name, value, path);
  write_attribute(file.get(), "complete", std::uint8_t{0}, path);
  std::string order;
  for (const ColumnSpec& column : with_commit(spec)) order += (order.empty() ? "" : " ") + column.path;
  write_text_attribute(file.get(), "columns", order, path);
  if (!spec.default_plot_column.empty()) create_default_plot(file.get(), spec.default_plot_column, path);
  MAGISTER_CHECK(file.close(), ExitCode::kInputOutput, "{}: closing the new file failed (it is not whole); check the disk",
                 printable(path));
}

void write_complete(const std::string& path) {
  silence_hdf5();
  H5File file(MAGISTER_CHECK_HDF5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), path));
  {
    const H5Attribute attribute(MAGISTER_CHECK_HDF5(H5Aopen(file.get(), "complete", H5P_DEFAULT), path));
    const std::uint8_t one = 1;
    MAGISTER_CHECK_HDF5(H5Awrite(attribute.get(), H5T_NATIVE_UINT8, &one), path);
  }
  MAGISTER_CHECK(file.close(), ExitCode::kInputOutput, "{}: closing the file failed (complete may not be set); check the "
                 "disk and run the same command again", printable(path));
}

namespace {

std::string read_text_attribute(hid_t object, const char* name, const std::string& path) {
  const H5Attribute attribute(MAGISTER_CHECK_HDF5(H5Aopen(object, name, H5P_DEFAULT), path));
  const H5Type type(H5Aget_type(attribute.get()));
  const std::size_t size = H5Tget_size(type.get());
  MAGISTER_CHECK(H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 && size <= (1 << 24),
                 ExitCode::kData, "{}: attribute {} is no text of fixed length (this file was not written by magister); use "
                 "another file", printable(path), name);
  std::string text(size, '\0');
  MAGISTER_CHECK_HDF5(H5Aread(attribute.get(), type.get(), text.data()), path);
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

ColumnType column_type(hid_t type, const std::string& path, const std::string& column) {
  static constexpr ColumnType kAll[] = {ColumnType::kU8,  ColumnType::kI32, ColumnType::kU32,
                                        ColumnType::kU64, ColumnType::kF16, ColumnType::kF32};
  for (const ColumnType candidate : kAll) {
    if (H5Tequal(type, hdf5_type(candidate, 0).get()) > 0) return candidate;
  }
  if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0) return ColumnType::kUtf8;
  fail(ExitCode::kData, "{}: {} has a type that magister never writes (the file was changed); use another file",
       printable(path), printable(column));
}

PlacedColumn read_column(hid_t file, const std::string& column, std::uint64_t file_bytes, const std::string& path) {
  const H5Dataset dataset(H5Dopen2(file, column.c_str(), H5P_DEFAULT));
  MAGISTER_CHECK(dataset.get() >= 0, ExitCode::kData, "{}: dataset {} is missing (the file was changed or is no results "
                 "file); use another file", printable(path), printable(column));
  const H5Type type(H5Dget_type(dataset.get()));
  const H5Space space(H5Dget_space(dataset.get()));
  const H5Properties creation(H5Dget_create_plist(dataset.get()));
  hsize_t dimensions[2] = {0, 0};
  const int rank = H5Sget_simple_extent_ndims(space.get());
  MAGISTER_CHECK((rank == 1 || rank == 2) && H5Pget_layout(creation.get()) == H5D_CONTIGUOUS &&
                     H5Pget_external_count(creation.get()) == 0,
                 ExitCode::kData, "{}: dataset {} is not laid out as magister writes it (the file was changed); use another "
                 "file", printable(path), printable(column));
  H5Sget_simple_extent_dims(space.get(), dimensions, nullptr);
  PlacedColumn placed;
  placed.spec.path = column;
  placed.spec.type = column_type(type.get(), path, column);
  placed.spec.num_rows = dimensions[0];
  placed.spec.width = placed.spec.type == ColumnType::kUtf8 ? H5Tget_size(type.get()) : dimensions[1];
  placed.spec.comment = read_text_attribute(dataset.get(), "comment", path);
  if (H5Aexists(dataset.get(), "units") > 0) placed.spec.units = read_text_attribute(dataset.get(), "units", path);
  const std::string extent = read_text_attribute(dataset.get(), "extent", path);
  placed.spec.extent = extent == "rows"      ? ColumnSpec::Extent::kRows
                       : extent == "samples" ? ColumnSpec::Extent::kSamples
                                             : ColumnSpec::Extent::kFixed;
  const std::uint64_t bytes = checked_multiply(placed.spec.num_rows, placed.row_bytes(), column);
  if (bytes == 0) return placed;
  const haddr_t offset = H5Dget_offset(dataset.get());
  MAGISTER_CHECK(offset != HADDR_UNDEF && checked_add(offset, bytes, column) <= file_bytes, ExitCode::kData,
                 "{}: dataset {} reaches beyond the file's {} bytes (it is cut short); use another file", printable(path),
                 printable(column), file_bytes);
  placed.offset = offset;
  return placed;
}

H5File open_for_reading(const std::string& path) {
  silence_hdf5();
  H5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  MAGISTER_CHECK(file.get() >= 0, ExitCode::kData, "{}: cannot be opened as HDF5 (it is damaged, cut short or no HDF5 "
                 "file); use another file, or put it aside with --fresh", printable(path));
  return file;
}

herr_t note_attribute(hid_t object, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return object >= 0 ? 0 : -1;
}

}  // namespace

std::vector<PlacedColumn> read_layout(const std::string& path) {
  const H5File file = open_for_reading(path);
  MAGISTER_CHECK(H5Aexists(file.get(), "columns") > 0, ExitCode::kData,
                 "{}: has no list of columns (it is no magister results file); use another file", printable(path));
  const std::string order = read_text_attribute(file.get(), "columns", path);
  const std::uint64_t file_bytes = std::filesystem::file_size(path);
  std::vector<PlacedColumn> columns;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t end = std::min(order.find(' ', begin), order.size());
    columns.push_back(read_column(file.get(), order.substr(begin, end - begin), file_bytes, path));
    begin = end + 1;
  }
  return columns;
}

Attributes read_attributes(const std::string& path) {
  const H5File file = open_for_reading(path);
  std::vector<std::string> names;
  hsize_t position = 0;
  MAGISTER_CHECK_HDF5(H5Aiterate2(file.get(), H5_INDEX_NAME, H5_ITER_INC, &position, note_attribute, &names), path);
  Attributes attributes;
  for (const std::string& name : names) {
    const H5Attribute attribute(H5Aopen(file.get(), name.c_str(), H5P_DEFAULT));
    const H5Type type(H5Aget_type(attribute.get()));
    if (H5Tget_class(type.get()) == H5T_STRING) {
      attributes.emplace_back(name, read_text_attribute(file.get(), name.c_str(), path));
    } else if (H5Tget_size(type.get()) == 1) {
      std::uint8_t value = 0;
      MAGISTER_CHECK_HDF5(H5Aread(attribute.get(), H5T_NATIVE_UINT8, &value), path);
      attributes.emplace_back(name, value);
    } else {
      std::uint64_t value = 0;
      MAGISTER_CHECK_HDF5(H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value), path);
      attributes.emplace_back(name, value);
    }
  }
  return attributes;
}

}  // namespace magister
