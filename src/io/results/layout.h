// The HDF5 side of a results file: made once, then read once for where everything stands. After that, rows travel as
// plain bytes at fixed offsets and HDF5 is not asked again until `complete` is set.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/results_file.h"

namespace magister {

// A column and the byte of the file where its first row begins.
struct PlacedColumn {
  ColumnSpec spec;
  std::uint64_t offset = 0;
  bool is_packed = false;  // no plain bytes at a place: in chunks, through filters, in the metadata; Hdf5Rows reads it
  std::uint64_t row_bytes() const;
  std::uint64_t num_bytes() const { return spec.num_rows * row_bytes(); }
};

// crc32c of every unit's inputs, where ResultsSpec::checks_inputs asked for it; older files have none.
constexpr const char* kInputChecksums = "/commit/input_crc32c";

// Attributes that write_layout adds to those of the spec; `columns` is the list of datasets in the order of creation.
constexpr const char* kLayoutAttributes[] = {"columns", "complete", "default", "layout_sha256"};

// The one attribute whose length users choose. Longer than the 64 KiB that HDF5's oldest format holds, it is written as a
// dataset of the same name, one string; read_attributes() gives it as if it were an attribute.
constexpr const char* kLongAttribute = "experiment";

// Makes the file at `path` (which must not exist): groups, contiguous datasets, attributes, `complete` = 0, /commit.
// Its bytes depend on the spec alone. is_made: an empty file stands there already (MpioFile::create). Local.
void write_layout(const std::string& path, const ResultsSpec& spec, bool is_made = false);
// Reads columns and attributes of a file made by write_layout; everything is checked against the file's size. Local.
std::vector<PlacedColumn> read_layout(const std::string& path);
Attributes read_attributes(const std::string& path);
// default_plot_column of the spec; empty: none.
std::string read_default_plot(const std::string& path);
// Digest of names, types, shapes and extents: tells when somebody replaced a dataset.
std::string layout_sha256(const std::vector<PlacedColumn>& columns);
// complete = 1. Local.
void write_complete(const std::string& path);

}  // namespace magister
