// Reads the metadata of a results file that may be damaged or foreign: names, types, shapes and places only. It reads
// no dataset of rows, follows no link to another file, and checks every size against the file before using it.
#include <filesystem>

#include "io/hdf5_chunks.h"
#include "io/hdf5_types.h"
#include "io/posix_file.h"
#include "io/results/layout.h"
#include "magister/core/checked.h"

namespace magister {
namespace {

constexpr std::size_t kMaxTextBytes = 1 << 20;
constexpr std::uint64_t kMostPacked = 2048;          // data bytes per stored byte; deflate reaches 1,032
constexpr std::size_t kMaxLongTextBytes = 64 << 20;  // an experiment file has at most 4 MiB

// Opens a file that PosixFile accepts: a folder, a FIFO or a missing file never reaches HDF5.
H5File open_for_reading(const std::string& path) {
  const PosixFile probe(path, PosixFile::Access::kRead);
  silence_hdf5();
  const H5Properties access = read_access();
  H5Pset_elink_file_cache_size(access.get(), 0);
  H5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (file.get() >= 0) return file;
  const std::string newer = newer_format();
  MAGISTER_CHECK(newer.empty(), ExitCode::kData, "{}: cannot be opened {}", printable(path), newer);
  fail(ExitCode::kData,
       "{}: cannot be opened as HDF5: {} (it is damaged, cut short or no HDF5 file); use another file, such as "
       "runs/NAME/TASK.h5; --fresh puts aside a file in the place of a run's results",
       printable(path), hdf5_reason());
}

// The type of an attribute with one value; other attributes are refused before any byte is read.
H5Type type_of_scalar(const H5Attribute& attribute, const char* name, const std::string& path) {
  const H5Space space(MAGISTER_READ_HDF5(H5Aget_space(attribute.get()), path));
  H5Type type(MAGISTER_READ_HDF5(H5Aget_type(attribute.get()), path));
  MAGISTER_CHECK(H5Sget_simple_extent_npoints(space.get()) == 1, ExitCode::kData,
                 "{}: attribute {} is not one value (it was "
                 "not written by magister); use another file",
                 printable(path), printable(name));
  return type;
}

std::string read_text_attribute(hid_t object, const char* name, const std::string& path) {
  const H5Attribute attribute(MAGISTER_READ_HDF5(H5Aopen(object, name, H5P_DEFAULT), path));
  const H5Type type = type_of_scalar(attribute, name, path);
  const std::size_t size = H5Tget_size(type.get());
  MAGISTER_CHECK(H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 && size <= kMaxTextBytes,
                 ExitCode::kData,
                 "{}: attribute {} is not a text of fixed length (it was not written by magister); use another "
                 "file",
                 printable(path), printable(name));
  std::string text(size, '\0');
  MAGISTER_READ_HDF5(H5Aread(attribute.get(), type.get(), text.data()), path);
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

AttributeValue read_attribute(hid_t object, const char* name, const std::string& path) {
  const H5Attribute attribute(MAGISTER_READ_HDF5(H5Aopen(object, name, H5P_DEFAULT), path));
  const H5Type type = type_of_scalar(attribute, name, path);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind == H5T_STRING) return read_text_attribute(object, name, path);
  MAGISTER_CHECK(
      kind == H5T_INTEGER && H5Tget_sign(type.get()) == H5T_SGN_NONE, ExitCode::kData,
      "{}: attribute {} is neither text nor an unsigned number (it was not written by magister); use another file",
      printable(path), printable(name));
  std::uint64_t value = 0;
  MAGISTER_READ_HDF5(H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value), path);
  if (H5Tget_size(type.get()) == 1) return static_cast<std::uint8_t>(value);
  return value;
}

ColumnType column_type(hid_t type, const std::string& path, const std::string& column) {
  static constexpr ColumnType kAll[] = {ColumnType::kU8,  ColumnType::kI32, ColumnType::kU32,
                                        ColumnType::kU64, ColumnType::kF16, ColumnType::kF32};
  for (const ColumnType candidate : kAll) {
    if (H5Tequal(type, hdf5_type(candidate, 0).get()) > 0) return candidate;
  }
  if (H5Tget_class(type) == H5T_STRING) return H5Tis_variable_str(type) > 0 ? ColumnType::kText : ColumnType::kUtf8;
  fail(ExitCode::kData, "{}: {} has a type that magister never writes (the file was changed); use another file",
       printable(path), printable(column));
}

ColumnSpec::Extent read_extent(hid_t dataset, const std::string& path, const std::string& column) {
  const std::string name = read_text_attribute(dataset, "extent", path);
  for (const auto extent : {ColumnSpec::Extent::kFixed, ColumnSpec::Extent::kSamples, ColumnSpec::Extent::kRows}) {
    if (name == extent_name(extent)) return extent;
  }
  fail(ExitCode::kData, "{}: {} has the extent {} (magister knows fixed, samples and rows); use another file",
       printable(path), printable(column), printable(name, 40));
}

// Properties with which a link out of the file cannot be opened.
H5Properties inside_only() {
  H5Properties access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_elink_cb(
      access.get(),
      [](const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) -> herr_t { return -1; },
      nullptr);
  return access;
}

H5Dataset open_column(hid_t file, const std::string& column, const std::string& path) {
  const H5Properties access = inside_only();
  H5Dataset dataset(H5Dopen2(file, column.c_str(), access.get()));
  if (dataset.get() >= 0) return dataset;
  const std::string newer = newer_format();
  MAGISTER_CHECK(newer.empty(), ExitCode::kData, "{}: dataset {} cannot be opened {}", printable(path),
                 printable(column), newer);
  fail(ExitCode::kData, "{}: dataset {} is missing (the file was changed or is not a results file); use another file",
       printable(path), printable(column));
}

// True if the column's bytes are at H5Dget_offset, and its texts at the places in their descriptors.
bool has_places(hid_t file, const H5Properties& creation, bool is_text, const std::string& path) {
  if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS) return false;
  if (!is_text) return true;
  hsize_t user_block = 0;  // addresses in the file are counted from its end
  const H5Properties of_file(MAGISTER_READ_HDF5(H5Fget_create_plist(file), path));
  MAGISTER_READ_HDF5(H5Pget_userblock(of_file.get(), &user_block), path);
  return user_block == 0;
}

// Sets the column's offset, or marks it as packed, so that HDF5 must read it.
void place_column(hid_t file, const H5Dataset& dataset, const H5Properties& creation, std::uint64_t file_bytes,
                  const std::string& path, PlacedColumn& placed) {
  const std::string& column = placed.spec.path;
  const std::uint64_t bytes = checked_multiply(placed.spec.num_rows, placed.row_bytes(), printable(column));
  placed.is_packed = !has_places(file, creation, placed.spec.type == ColumnType::kText, path);
  if (placed.is_packed) {
    require_filters(creation, path, column);
    MAGISTER_CHECK(bytes / kMostPacked <= file_bytes, ExitCode::kData,
                   "{}: dataset {} has {} rows, more than {} bytes can be packed in (the file is damaged); use another "
                   "file",
                   printable(path), printable(column), placed.spec.num_rows, file_bytes);
  }
  if (bytes == 0 || placed.is_packed) return;
  const haddr_t offset = H5Dget_offset(dataset.get());
  MAGISTER_CHECK(offset != HADDR_UNDEF && checked_add(offset, bytes, printable(column)) <= file_bytes, ExitCode::kData,
                 "{}: dataset {} reaches beyond the file's {} bytes (it is cut short); use another file",
                 printable(path), printable(column), file_bytes);
  placed.offset = offset;
}

PlacedColumn read_column(hid_t file, const std::string& column, std::uint64_t file_bytes, const std::string& path) {
  const H5Dataset dataset = open_column(file, column, path);
  const H5Type type(MAGISTER_READ_HDF5(H5Dget_type(dataset.get()), path));
  const H5Space space(MAGISTER_READ_HDF5(H5Dget_space(dataset.get()), path));
  const H5Properties creation(MAGISTER_READ_HDF5(H5Dget_create_plist(dataset.get()), path));
  hsize_t dimensions[2] = {0, 0};
  const int rank = H5Sget_simple_extent_ndims(space.get());
  MAGISTER_CHECK((rank == 1 || rank == 2) && H5Pget_layout(creation.get()) != H5D_VIRTUAL &&
                     H5Pget_external_count(creation.get()) == 0,
                 ExitCode::kData,
                 "{}: dataset {} is no table of rows in this file itself (the file was changed); use another file",
                 printable(path), printable(column));
  MAGISTER_READ_HDF5(H5Sget_simple_extent_dims(space.get(), dimensions, nullptr), path);
  PlacedColumn placed;
  placed.spec.path = column;
  placed.spec.type = column_type(type.get(), path, column);
  placed.spec.num_rows = dimensions[0];
  placed.spec.width = placed.spec.type == ColumnType::kUtf8 ? H5Tget_size(type.get()) : dimensions[1];
  place_column(file, dataset, creation, file_bytes, path, placed);
  // Each row is one entry: magister never writes a second dimension of strings, or one without entries.
  const bool is_text = placed.spec.type == ColumnType::kText;
  MAGISTER_CHECK((rank == 1 || (placed.spec.type != ColumnType::kUtf8 && !is_text && placed.spec.width > 0)) &&
                     (!is_text || placed.is_packed || H5Dget_storage_size(dataset.get()) == placed.num_bytes()),
                 ExitCode::kData,
                 "{}: dataset {} has a shape that magister never writes (the file was changed); use another file",
                 printable(path), printable(column));
  placed.spec.comment = read_text_attribute(dataset.get(), "comment", path);
  if (H5Aexists(dataset.get(), "units") > 0) placed.spec.units = read_text_attribute(dataset.get(), "units", path);
  placed.spec.extent = read_extent(dataset.get(), path, column);
  return placed;
}

// Adds the experiment if it is a dataset of its own; every size is checked before a byte is read.
void add_long_text(hid_t file, Attributes& attributes, const std::string& path) {
  if (H5Aexists(file, kLongAttribute) > 0 || H5Lexists(file, kLongAttribute, H5P_DEFAULT) <= 0) return;
  const H5Properties access = inside_only();
  const H5Dataset dataset(MAGISTER_READ_HDF5(H5Dopen2(file, kLongAttribute, access.get()), path));
  const H5Type type(MAGISTER_READ_HDF5(H5Dget_type(dataset.get()), path));
  const H5Space space(MAGISTER_READ_HDF5(H5Dget_space(dataset.get()), path));
  const H5Properties creation(MAGISTER_READ_HDF5(H5Dget_create_plist(dataset.get()), path));
  const std::size_t size = H5Tget_size(type.get());
  const haddr_t offset = H5Dget_offset(dataset.get());
  const bool sound = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
                     size <= kMaxLongTextBytes && H5Sget_simple_extent_type(space.get()) == H5S_SCALAR &&
                     H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0 &&
                     offset != HADDR_UNDEF &&
                     checked_add(offset, size, kLongAttribute) <= std::filesystem::file_size(path);
  MAGISTER_CHECK(sound, ExitCode::kData,
                 "{}: dataset /{} is not one text of fixed length inside the file (it was changed or cut "
                 "short); use another file",
                 printable(path), kLongAttribute);
  std::string text(size, '\0');
  PosixFile(path, PosixFile::Access::kRead).read_at(offset, std::as_writable_bytes(std::span(text)));
  text.resize(std::min(text.find('\0'), text.size()));
  attributes.emplace_back(kLongAttribute, std::move(text));
}

herr_t note_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

}  // namespace

std::vector<PlacedColumn> read_layout(const std::string& path) {
  const H5File file = open_for_reading(path);
  MAGISTER_CHECK(H5Aexists(file.get(), "columns") > 0, ExitCode::kData,
                 "{}: has no list of columns (it is not a magister results file); use another file", printable(path));
  const std::string order = read_text_attribute(file.get(), "columns", path);
  const std::uint64_t file_bytes = std::filesystem::file_size(path);
  std::vector<PlacedColumn> columns;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t end = std::min(order.find(' ', begin), order.size());
    columns.push_back(read_column(file.get(), order.substr(begin, end - begin), file_bytes, path));
    for (std::size_t i = 0; i + 1 < columns.size(); ++i) {
      MAGISTER_CHECK(columns[i].spec.path != columns.back().spec.path, ExitCode::kData,
                     "{}: dataset {} is listed twice (the file was changed); use another file", printable(path),
                     printable(columns[i].spec.path));
    }
    begin = end + 1;
  }
  return columns;
}

Attributes read_attributes(const std::string& path) {
  const H5File file = open_for_reading(path);
  // Asking for a name that no attribute has makes HDF5 decode all attributes, so that a damaged one is an error here.
  // In H5Aiterate2, HDF5 1.10 meets it with a half-filled table, frees the whole table, and crashes.
  MAGISTER_READ_HDF5(H5Aexists(file.get(), "no attribute of this name"), path);
  std::vector<std::string> names;
  hsize_t position = 0;
  MAGISTER_READ_HDF5(H5Aiterate2(file.get(), H5_INDEX_NAME, H5_ITER_INC, &position, note_attribute, &names), path);
  Attributes attributes;
  for (const std::string& name : names) attributes.emplace_back(name, read_attribute(file.get(), name.c_str(), path));
  add_long_text(file.get(), attributes, path);
  return attributes;
}

std::string read_default_plot(const std::string& path) {
  const H5File file = open_for_reading(path);
  if (H5Aexists(file.get(), "default") <= 0 || H5Lexists(file.get(), "plot", H5P_DEFAULT) <= 0) return "";
  const H5Group group(MAGISTER_READ_HDF5(H5Gopen2(file.get(), "plot", H5P_DEFAULT), path));
  const std::string signal = read_text_attribute(group.get(), "signal", path);
  H5L_info_t link;
  MAGISTER_READ_HDF5(H5Lget_info(group.get(), signal.c_str(), &link, H5P_DEFAULT), path);
  if (link.type != H5L_TYPE_SOFT || link.u.val_size > 4096) return "";
  std::string target(link.u.val_size, '\0');
  MAGISTER_READ_HDF5(H5Lget_val(group.get(), signal.c_str(), target.data(), target.size(), H5P_DEFAULT), path);
  target.resize(std::min(target.find('\0'), target.size()));
  return target;
}

}  // namespace magister
