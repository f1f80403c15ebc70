// Uses little-endian standard types on every machine, so that equal specs give equal bytes.
#include "io/hdf5_types.h"

#include <fmt/format.h>

#include <string_view>

namespace magister {

H5Type hdf5_type(ColumnType type, std::uint64_t width) {
  switch (type) {
    case ColumnType::kU8:
      return H5Type(H5Tcopy(H5T_STD_U8LE));
    case ColumnType::kI32:
      return H5Type(H5Tcopy(H5T_STD_I32LE));
    case ColumnType::kU32:
      return H5Type(H5Tcopy(H5T_STD_U32LE));
    case ColumnType::kU64:
      return H5Type(H5Tcopy(H5T_STD_U64LE));
    case ColumnType::kF32:
      return H5Type(H5Tcopy(H5T_IEEE_F32LE));
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
    case ColumnType::kText: {
      H5Type text(H5Tcopy(H5T_C_S1));
      H5Tset_size(text.get(), H5T_VARIABLE);
      H5Tset_cset(text.get(), H5T_CSET_UTF8);
      return text;
    }
  }
  fail(ExitCode::kInternal, "column type {} is unknown (a case is missing); report this", static_cast<int>(type));
}

const char* extent_name(ColumnSpec::Extent extent) {
  switch (extent) {
    case ColumnSpec::Extent::kFixed:
      return "fixed";
    case ColumnSpec::Extent::kSamples:
      return "samples";
    case ColumnSpec::Extent::kRows:
      return "rows";
  }
  return "?";
}

H5Properties file_access() {
  H5Properties access(H5Pcreate(H5P_FILE_ACCESS));
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access.get(), false, true);
#endif
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
  return access;
}

H5Properties read_access() {
  H5Properties access = file_access();
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
  return access;
}

namespace {

// True for "bad version number", false for "type conversion failed".
bool names_a_version(std::string_view words) {
  const std::size_t at = words.find("version");
  return at != std::string_view::npos && (at == 0 || words[at - 1] == ' ');
}

}  // namespace

std::string newer_format() {
  std::string found;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* text) -> herr_t {
        std::string& words = *static_cast<std::string*>(text);
        if (words.empty() && entry->desc != nullptr && names_a_version(entry->desc)) words = entry->desc;
        return 0;
      },
      &found);
  if (found.empty()) return "";
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format(
      "by HDF5 {}.{}.{}, which is linked here: {} (a newer HDF5 has written it, as libver=\"latest\" of h5py on HDF5 "
      "2.0 "
      "does with compressed data, or the file is damaged); write it with the upper bound "
      "libver=(\"earliest\", \"v114\"), which this one reads",
      major, minor, release, printable(found));
}

std::mutex& hdf5_turn() {
  static std::mutex turn;
  return turn;
}

}  // namespace magister
