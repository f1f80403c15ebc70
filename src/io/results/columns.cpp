// Every row range is checked against its column before data is read or written: a damaged offset must not reach a
// neighbouring column.
#include "io/results/columns.h"

#include "io/mpio_file.h"
#include "io/results/text_heap.h"
#include "magister/core/error.h"
#include "magister/io/crc32c.h"

namespace magister {

ResultsColumns::ResultsColumns(PosixFile file, std::vector<PlacedColumn> columns)
    : file_(std::move(file)), columns_(std::move(columns)) {
  for (std::size_t i = 0; i < columns_.size(); ++i) by_path_[columns_[i].spec.path] = i;
  if (std::any_of(columns_.begin(), columns_.end(), [](const PlacedColumn& column) { return column.is_packed; }))
    packed_ = std::make_shared<Hdf5Rows>(file_.path());
}

const PlacedColumn* ResultsColumns::find(const std::string& path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : &columns_[found->second];
}

const PlacedColumn& ResultsColumns::at(const std::string& path) const {
  const PlacedColumn* column = find(path);
  MAGISTER_CHECK(column != nullptr, ExitCode::kInternal,
                 "{}: there is no column {} (nothing can be written or read there); "
                 "report this",
                 printable(file_.path()), path);
  return *column;
}

const PlacedColumn& ResultsColumns::required(const std::string& path) const {
  const PlacedColumn* const column = find(path);
  MAGISTER_CHECK(column != nullptr, ExitCode::kData,
                 "{}: dataset {} is missing (the file is damaged or of another version); run check",
                 printable(file_.path()), printable(path));
  return *column;
}

const PlacedColumn& ResultsColumns::required(const std::string& path, ColumnType type) const {
  const PlacedColumn* const column = find(path);
  MAGISTER_CHECK(column != nullptr && column->spec.type == type, ExitCode::kData,
                 "{}: dataset {} is missing or of another type (the file was changed or is of another task); use "
                 "another file",
                 printable(file_.path()), printable(path));
  return *column;
}

namespace {

// True if `num_bytes` are whole rows that lie inside the column from first_row on.
bool fits(const PlacedColumn& column, std::uint64_t first_row, std::uint64_t num_bytes) {
  const std::uint64_t rows = num_bytes / column.row_bytes();
  return num_bytes % column.row_bytes() == 0 && first_row <= column.spec.num_rows &&
         rows <= column.spec.num_rows - first_row;
}

}  // namespace

void ResultsColumns::write(const std::string& path, std::uint64_t first_row, std::span<const std::byte> data) {
  const PlacedColumn& column = at(path);
  MAGISTER_CHECK(
      column.spec.type != ColumnType::kText && fits(column, first_row, data.size()), ExitCode::kInternal,
      "{}: {} bytes at row {} do not fit {} with {} rows of {} bytes (neighbours would be overwritten); report this",
      printable(file_.path()), data.size(), first_row, path, column.spec.num_rows, column.row_bytes());
  if (mpio_ && !data.empty()) return mpio_->write(column, first_row, data);
  file_.write_at(column.offset + first_row * column.row_bytes(), data);
}

void ResultsColumns::write_zeros(const std::string& path) {
  const PlacedColumn& column = at(path);
  const std::uint64_t rows_a_piece = kPieceBytes / column.row_bytes();
  const std::vector<std::byte> zeros(std::min(rows_a_piece, column.spec.num_rows) * column.row_bytes());
  for (std::uint64_t row = 0; row < column.spec.num_rows; row += rows_a_piece) {
    write(path, row, std::span(zeros).first(std::min(rows_a_piece, column.spec.num_rows - row) * column.row_bytes()));
  }
}

void ResultsColumns::read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data) const {
  MAGISTER_CHECK(
      fits(column, first_row, data.size()), ExitCode::kData,
      "{}: {} bytes from row {} of {} are asked for, but it has {} rows of {} bytes (the file is damaged); put it "
      "aside with --fresh",
      printable(file_.path()), data.size(), first_row, printable(column.spec.path), column.spec.num_rows,
      column.row_bytes());
  if (column.is_packed) return packed_->read(column, first_row, data);
  if (mpio_ && !data.empty()) return mpio_->read(column, first_row, data);
  file_.read_at(column.offset + first_row * column.row_bytes(), data);
}

void ResultsColumns::open_mpio(const ResultsAccess& access) {
  access_ = access;
  mpio_ = std::make_shared<MpioFile>(file_.path(), access);
}

void ResultsColumns::close_mpio() {
  if (const auto closing = std::exchange(mpio_, nullptr)) closing->close();
}

void ResultsColumns::reopen(const std::string& path) {
  const bool had_mpio = has_mpio();
  close_mpio();
  file_.set_path(path);
  file_.reopen();
  if (had_mpio) open_mpio(ResultsAccess(access_));
}

void ResultsColumns::sync_data() {
  if (mpio_)
    mpio_->sync();
  else
    file_.sync_data();
}

void ResultsColumns::sync() {
  if (mpio_) mpio_->sync();
  file_.sync();
}

Unit ResultsColumns::unit(std::uint64_t unit_index) const {
  Unit unit;
  unit.index = unit_index;
  const auto samples = rows<std::uint64_t>("/commit/unit_begin", unit_index, 2);
  unit.samples = {samples[0], samples[1]};
  unit.rows = {rows<std::uint64_t>("/samples/offset", samples[0], 1)[0],
               rows<std::uint64_t>("/samples/offset", samples[1], 1)[0]};
  MAGISTER_CHECK(
      unit.samples.begin <= unit.samples.end && unit.rows.begin <= unit.rows.end, ExitCode::kData,
      "{}: unit {} has samples {} to {} and rows {} to {} (its offsets are damaged); put the file aside with --fresh",
      printable(file_.path()), unit_index, unit.samples.begin, unit.samples.end, unit.rows.begin, unit.rows.end);
  return unit;
}

UnitSet ResultsColumns::pending_units() const {
  const PlacedColumn& done = at("/commit/done");
  return UnitSet(num_units(), [&](std::uint64_t first, std::span<std::uint8_t> flags) {
    read(done, first, std::as_writable_bytes(flags));
  });
}

std::uint64_t ResultsColumns::rows_of(const UnitSet& units) const {
  OffsetCursor unit_begin(*this, "/commit/unit_begin"), offset(*this, "/samples/offset");
  std::uint64_t rows = 0;
  units.for_each_run([&](IndexRange run) {
    const std::uint64_t first = unit_begin.at(run.begin), end = unit_begin.at(run.end);
    const std::uint64_t first_row = offset.at(first);
    rows += offset.at(end) - first_row;
  });
  return rows;
}

std::uint64_t ResultsColumns::most_rows_of_a_unit() const {
  OffsetCursor unit_begin(*this, "/commit/unit_begin"), offset(*this, "/samples/offset");
  std::uint64_t most = 0, begin = offset.at(unit_begin.at(0));
  for (std::uint64_t unit = 0; unit < num_units(); ++unit) {
    const std::uint64_t end = offset.at(unit_begin.at(unit + 1));
    most = std::max(most, end - begin);
    begin = end;
  }
  return most;
}

std::vector<const PlacedColumn*> ResultsColumns::unit_columns() const {
  std::vector<const PlacedColumn*> covered;
  for (const auto extent : {ColumnSpec::Extent::kSamples, ColumnSpec::Extent::kRows}) {
    for (const PlacedColumn& column : columns_) {
      if (column.spec.extent == extent) covered.push_back(&column);
    }
  }
  return covered;
}

std::uint32_t ResultsColumns::checksum(std::uint32_t crc, const PlacedColumn& column, IndexRange rows) const {
  if (column.spec.type == ColumnType::kText) {
    TextHeap(*this, column).for_each(rows, [&](std::uint64_t, std::string_view text) {
      const auto length = static_cast<std::uint32_t>(text.size());
      crc = crc32c(crc, std::as_bytes(std::span(&length, 1)));
      crc = crc32c(crc, std::as_bytes(std::span(text)));
    });
    return crc;
  }
  for_each_piece(column, rows, [&](std::uint64_t, std::span<const std::byte> bytes) { crc = crc32c(crc, bytes); });
  return crc;
}

std::uint32_t ResultsColumns::plan_checksum() const {
  std::uint32_t crc = 0;
  for (const PlacedColumn& column : columns_) {
    const std::string& path = column.spec.path;
    const bool is_record = path.starts_with("/commit/") && path != "/commit/unit_begin";
    if (column.spec.extent != ColumnSpec::Extent::kFixed || is_record) continue;
    for_each_piece(column, {0, column.spec.num_rows},
                   [&](std::uint64_t, std::span<const std::byte> bytes) { crc = crc32c(crc, bytes); });
  }
  return crc;
}

}  // namespace magister
