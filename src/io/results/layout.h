// The HDF5 side of a results file: created once, then read once for the places of all columns. After that, rows are
// read and written as plain bytes at fixed offsets, and HDF5 is not used again until `complete` is set.
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
  // Not plain bytes at one offset but chunks, filters or inside the metadata; Hdf5Rows reads it.
  bool is_packed = false;
  std::uint64_t row_bytes() const;
  std::uint64_t num_bytes() const { return spec.num_rows * row_bytes(); }
};

// crc32c of every unit's inputs, if ResultsSpec::checks_inputs requested it; older files lack it.
constexpr const char* kInputChecksums = "/commit/input_crc32c";

// Attributes that write_layout adds to those of the spec; `columns` lists the datasets in the order of creation.
constexpr const char* kLayoutAttributes[] = {"columns", "complete", "default", "layout_sha256"};

// The only attribute whose length users choose. If it exceeds the 64 KiB of HDF5's oldest format, it is written as a
// dataset of the same name, one string; read_attributes() returns it as an attribute.
constexpr const char* kLongAttribute = "experiment";

// Creates the file at `path` (which must not exist): groups, contiguous datasets, attributes, `complete` = 0, /commit.
// Its bytes depend on the spec only. is_made: an empty file exists already (MpioFile::create). Local.
void write_layout(const std::string& path, const ResultsSpec& spec, bool is_made = false);
// Read columns and attributes of a file made by write_layout; everything is checked against the file's size. Local.
std::vector<PlacedColumn> read_layout(const std::string& path);
Attributes read_attributes(const std::string& path);
// The spec's default_plot_column; empty: none.
std::string read_default_plot(const std::string& path);
// Digest of names, types, shapes and extents: shows if somebody replaced a dataset.
std::string layout_sha256(const std::vector<PlacedColumn>& columns);
// Sets complete = 1. Local.
void write_complete(const std::string& path);

}  // namespace magister
