// ResultsColumns: the datasets of an open results file as plain bytes at fixed offsets, and its units. The writer and
// all readers use it; HDF5 reads only the columns that another program has packed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/posix_file.h"
#include "io/results/hdf5_rows.h"
#include "io/results/layout.h"
#include "io/results/unit_bytes.h"
#include "magister/core/types.h"
#include "magister/core/unit_set.h"

namespace magister {

class MpioFile;

class ResultsColumns {
 public:
  ResultsColumns() = default;
  ResultsColumns(PosixFile file, std::vector<PlacedColumn> columns);

  const std::string& path() const { return file_.path(); }
  // Opens the file through MPI-IO and keeps it open; from then on rows are read and written this way.
  void open_mpio(const ResultsAccess& access);
  bool has_mpio() const { return mpio_ != nullptr; }
  void close_mpio();
  // Opens the file again under its present name; afterwards data that other hosts have synced is visible.
  void reopen(const std::string& path);
  void sync_data();  // rows, before their flags
  void sync();
  PosixFile& file() { return file_; }
  const PosixFile& file() const { return file_; }
  const std::vector<PlacedColumn>& all() const { return columns_; }
  const PlacedColumn* find(const std::string& path) const;  // null: there is none
  const PlacedColumn& at(const std::string& path) const;    // absent: Error(kInternal)
  // A column that the file of another program or task may lack. Throws Error(kData) when it is absent or of another
  // type.
  const PlacedColumn& required(const std::string& path) const;
  const PlacedColumn& required(const std::string& path, ColumnType type) const;
  // True if the file has columns with token rows; the curves of a training have none.
  bool has_rows() const {
    return std::any_of(columns_.begin(), columns_.end(),
                       [](const PlacedColumn& column) { return column.spec.extent == ColumnSpec::Extent::kRows; });
  }

  void write_zeros(const std::string& path);
  // Rows [first_row, ...) of a column; data is whole rows. Any thread.
  void write(const std::string& path, std::uint64_t first_row, std::span<const std::byte> data);
  void read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) const;
  // Rows of packed columns (PlacedColumn::is_packed); only if there is one.
  Hdf5Rows& packed() const { return *packed_; }
  // T has the size of a row.
  template <typename T>
  std::vector<T> rows(const std::string& path, std::uint64_t first_row, std::uint64_t count) const {
    std::vector<T> values(count);
    read(at(path), first_row, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Calls visit(first row, bytes of some whole rows) in order, in pieces of about 1 MiB.
  template <typename Visit>
  void for_each_piece(const PlacedColumn& column, IndexRange rows, const Visit& visit) const {
    const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, kPieceBytes / column.row_bytes());
    std::vector<std::byte> piece(std::min(rows_a_piece, rows.size()) * column.row_bytes());
    for (std::uint64_t row = rows.begin; row < rows.end; row += rows_a_piece) {
      const auto bytes = std::span(piece).first(std::min(rows_a_piece, rows.end - row) * column.row_bytes());
      read(column, row, bytes);
      visit(row, std::span<const std::byte>(bytes));
    }
  }

  std::uint64_t num_units() const { return at("/commit/done").spec.num_rows; }
  std::uint64_t num_samples() const { return at("/samples/offset").spec.num_rows - 1; }
  // Sample and row ranges from /commit/unit_begin and /samples/offset.
  Unit unit(std::uint64_t unit_index) const;
  // The units whose done flag is 0, and the number of rows of a set of units. Both read in blocks.
  UnitSet pending_units() const;
  std::uint64_t rows_of(const UnitSet& units) const;
  // Rows of the largest unit; 0: no units. Reads in blocks.
  std::uint64_t most_rows_of_a_unit() const;
  // The columns that a unit's checksum covers: columns of samples, then of rows, each in the order of creation.
  std::vector<const PlacedColumn*> unit_columns() const;
  static IndexRange extent_in(const Unit& unit, const PlacedColumn& column) {
    return column.spec.extent == ColumnSpec::Extent::kSamples ? unit.samples : unit.rows;
  }
  std::uint32_t checksum(const Unit& unit) const { return unit_checksums(*this, borders_of(unit), UnitPart::kAll)[0]; }
  // Continues `crc` over some rows of a column; for strings of any length over their lengths and bytes.
  std::uint32_t checksum(std::uint32_t crc, const PlacedColumn& column, IndexRange rows) const;
  // crc32c of the plan: every fixed column except the commit record itself.
  std::uint32_t plan_checksum() const;

 private:
  static constexpr std::uint64_t kPieceBytes = 1 << 20;
  PosixFile file_;
  std::vector<PlacedColumn> columns_;
  std::map<std::string, std::size_t> by_path_;
  ResultsAccess access_;
  std::shared_ptr<Hdf5Rows> packed_;  // null: no packed column
  // Null: rows use pread and pwrite. A shared_ptr only because the type is incomplete here.
  std::shared_ptr<MpioFile> mpio_;
};

// Reads a u64 column at ascending places in blocks; a system call per value would take 0.5 us each.
class OffsetCursor {
 public:
  OffsetCursor(const ResultsColumns& columns, const char* path) : columns_(columns), column_(columns.at(path)) {}
  std::uint64_t at(std::uint64_t row) {
    if (row < first_ || row - first_ >= values_.size()) {
      first_ = row;
      values_.resize(row < column_.spec.num_rows ? std::min(kValues, column_.spec.num_rows - row) : 1);
      columns_.read(column_, row, std::as_writable_bytes(std::span(values_)));
    }
    return values_[row - first_];
  }

 private:
  static constexpr std::uint64_t kValues = 1 << 15;
  const ResultsColumns& columns_;
  const PlacedColumn& column_;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> values_;
};

// The required columns that this file lacks, one line each; num_units(), num_samples() and unit() require that it is
// empty.
std::vector<std::string> missing_columns(const ResultsColumns& columns);
// The faults of sizes, flags and offsets, one line each. Empty: the columns agree with `attributes` and with their own
// plan. Reads the fixed columns once in pieces: 16 bytes per sample.
std::vector<std::string> structure_faults(const ResultsColumns& columns, const Attributes& attributes);

}  // namespace magister
