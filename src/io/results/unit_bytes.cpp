#include "io/results/unit_bytes.h"

#include <algorithm>
#include <span>

#include "io/results/columns.h"
#include "magister/core/error.h"
#include "magister/io/crc32c.h"

namespace magister {
namespace {

// Continues the checksums over a column's rows. borders [units + 1].
void add_column(const ResultsColumns& columns, const PlacedColumn& column, std::span<const std::uint64_t> borders,
                std::span<std::uint32_t> checksums) {
  if (column.spec.type == ColumnType::kText) {
    for (std::size_t unit = 0; unit < checksums.size(); ++unit)
      checksums[unit] = columns.checksum(checksums[unit], column, {borders[unit], borders[unit + 1]});
    return;
  }
  const std::uint64_t row_bytes = column.row_bytes();
  std::size_t unit = 0;
  columns.for_each_piece(
      column, {borders.front(), borders.back()}, [&](std::uint64_t row, std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
          while (borders[unit + 1] <= row) ++unit;
          const std::uint64_t rows = std::min<std::uint64_t>(borders[unit + 1] - row, bytes.size() / row_bytes);
          checksums[unit] = crc32c(checksums[unit], bytes.first(rows * row_bytes));
          bytes = bytes.subspan(rows * row_bytes);
          row += rows;
        }
      });
}

}  // namespace

bool is_input(const ColumnSpec& column) {
  return column.extent != ColumnSpec::Extent::kFixed &&
         (column.path.starts_with("/samples/") || column.path.starts_with("/tokens/"));
}

UnitBorders borders_of(const Unit& unit) {
  return {{unit.samples.begin, unit.samples.end}, {unit.rows.begin, unit.rows.end}};
}

UnitBorders borders_of(const ResultsColumns& columns, IndexRange units) {
  UnitBorders borders;
  borders.samples = columns.rows<std::uint64_t>("/commit/unit_begin", units.begin, units.size() + 1);
  OffsetCursor offset(columns, "/samples/offset");
  borders.rows.reserve(borders.samples.size());
  for (const std::uint64_t sample : borders.samples) borders.rows.push_back(offset.at(sample));
  MAGISTER_CHECK(
      std::is_sorted(borders.samples.begin(), borders.samples.end()) &&
          std::is_sorted(borders.rows.begin(), borders.rows.end()),
      ExitCode::kData,
      "{}: the samples or rows of units {} to {} decrease (its offsets are damaged); put the file aside with --fresh",
      printable(columns.path()), units.begin, units.end);
  return borders;
}

std::vector<std::uint32_t> unit_checksums(const ResultsColumns& columns, const UnitBorders& borders, UnitPart part) {
  std::vector<std::uint32_t> checksums(borders.samples.size() - 1, 0);
  for (const PlacedColumn* column : columns.unit_columns()) {
    if (part == UnitPart::kInputs && !is_input(column->spec)) continue;
    const bool of_samples = column->spec.extent == ColumnSpec::Extent::kSamples;
    add_column(columns, *column, of_samples ? borders.samples : borders.rows, checksums);
  }
  return checksums;
}

void for_each_batch(const ResultsColumns& columns, IndexRange units,
                    const std::function<void(IndexRange batch)>& visit) {
  constexpr std::uint64_t kMostUnits = 1 << 16, kBytes = 64 << 20;
  std::uint64_t num_bytes = 0;
  for (const PlacedColumn* column : columns.unit_columns()) num_bytes += column->num_bytes();
  const std::uint64_t unit_bytes = num_bytes / std::max<std::uint64_t>(1, columns.num_units()) + 1,
                      batch = std::clamp<std::uint64_t>(kBytes / unit_bytes, 1, kMostUnits);
  for (std::uint64_t begin = units.begin; begin < units.end; begin += batch)
    visit({begin, std::min(begin + batch, units.end)});
}

}  // namespace magister
