// Checks the structure of a results file against itself: shapes, places, flags, offsets. It looks at no row's values.
// The file's own text (attributes, names) is foreign: its size was checked when it was read, and it is printed escaped.
#include <cstring>

#include "io/results/columns.h"
#include "magister/core/error.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

using Faults = std::vector<std::string>;

void check_rows(const ResultsColumns& columns, const Attributes& attributes, Faults& faults) {
  const std::uint64_t n = columns.num_samples(), u = columns.num_units();
  std::uint64_t end = columns.rows<std::uint64_t>("/samples/offset", n, 1)[0];
  const std::pair<const char*, std::uint64_t> counts[] = {{"num_samples", n}, {"num_tokens", end}};
  for (const auto& [name, count] : counts) {
    const AttributeValue* value = find_attribute(attributes, name);
    const auto* number = value == nullptr ? nullptr : std::get_if<std::uint64_t>(value);
    if (value != nullptr && (number == nullptr || *number != count)) {
      faults.push_back(fmt::format("attribute {} is not the {} that the offsets say", name, count));
    }
  }
  const auto expect = [&](const PlacedColumn& column, std::uint64_t rows, const char* what) {
    if (column.spec.num_rows == rows) return;
    faults.push_back(fmt::format("dataset {} has {} rows where there are {} {}", printable(column.spec.path),
                                 column.spec.num_rows, rows, what));
  };
  for (const PlacedColumn& column : columns.all()) {
    if (column.spec.extent == ColumnSpec::Extent::kSamples) expect(column, n, "samples");
    if (column.spec.extent == ColumnSpec::Extent::kRows) expect(column, end, "tokens");
  }
  expect(columns.at("/commit/unit_begin"), u + 1, "units with the end");
  expect(columns.at("/commit/crc32c"), u, "units");
  expect(columns.at("/commit/plan_crc32c"), 1, "plan");
  if (const PlacedColumn* const inputs = columns.find(kInputChecksums)) expect(*inputs, u, "units");
}

// Reports columns that share bytes, because they would overwrite each other.
void check_places(const ResultsColumns& columns, Faults& faults) {
  std::vector<const PlacedColumn*> by_offset;
  for (const PlacedColumn& column : columns.all()) {
    if (column.num_bytes() > 0 && !column.is_packed) by_offset.push_back(&column);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    if (by_offset[i - 1]->offset + by_offset[i - 1]->num_bytes() > by_offset[i]->offset) {
      faults.push_back(fmt::format("datasets {} and {} share bytes of the file", printable(by_offset[i - 1]->spec.path),
                                   printable(by_offset[i]->spec.path)));
    }
  }
}

// Requires offsets that start at 0, never decrease (strict: always increase) and end at `end`.
void check_offsets(const ResultsColumns& columns, const char* path, std::uint64_t end, bool strict, Faults& faults) {
  const PlacedColumn& column = columns.at(path);
  std::uint64_t last = 0;
  bool sound = true;
  columns.for_each_piece(column, {0, column.spec.num_rows}, [&](std::uint64_t row, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size() && sound; at += sizeof last, ++row) {
      std::uint64_t value;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      sound = row == 0 ? value == 0 : value > last || (value == last && !strict);
      if (!sound) faults.push_back(fmt::format("{}[{}] is {} after {}", path, row, value, last));
      last = value;
    }
  });
  if (sound && last != end) faults.push_back(fmt::format("{} ends at {}, not at {}", path, last, end));
}

void check_flags(const ResultsColumns& columns, Faults& faults) {
  const PlacedColumn& done = columns.at("/commit/done");
  bool sound = true;
  columns.for_each_piece(done, {0, done.spec.num_rows}, [&](std::uint64_t row, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size() && sound; ++i) {
      sound = std::to_integer<int>(bytes[i]) <= 1;
      if (!sound) {
        faults.push_back(fmt::format("unit {} has the done flag {}; only 0 and 1 are written", row + i,
                                     std::to_integer<int>(bytes[i])));
      }
    }
  });
}

}  // namespace

std::vector<std::string> missing_columns(const ResultsColumns& columns) {
  const std::pair<const char*, ColumnType> required[] = {{"/samples/offset", ColumnType::kU64},
                                                         {"/commit/unit_begin", ColumnType::kU64},
                                                         {"/commit/done", ColumnType::kU8},
                                                         {"/commit/crc32c", ColumnType::kU32},
                                                         {"/commit/plan_crc32c", ColumnType::kU32}};
  Faults faults;
  for (const auto& [path, type] : required) {
    const PlacedColumn* column = columns.find(path);
    if (column == nullptr) {
      faults.push_back(fmt::format("dataset {} is missing", path));
    } else if (column->spec.type != type || column->spec.width != 0) {
      faults.push_back(fmt::format("dataset {} has another type or shape than magister gives it", path));
    } else if (column->spec.num_rows == 0 && type == ColumnType::kU64) {
      faults.push_back(fmt::format("dataset {} is empty; it holds at least its end", path));
    }
  }
  const PlacedColumn* const inputs = columns.find(kInputChecksums);
  if (inputs != nullptr && (inputs->spec.type != ColumnType::kU32 || inputs->spec.width != 0))
    faults.push_back(fmt::format("dataset {} has another type or shape than magister gives it", kInputChecksums));
  return faults;
}

std::vector<std::string> structure_faults(const ResultsColumns& columns, const Attributes& attributes) {
  Faults faults = missing_columns(columns);
  const AttributeValue* layout = find_attribute(attributes, "layout_sha256");
  if (layout == nullptr || *layout != AttributeValue(layout_sha256(columns.all()))) {
    faults.push_back("types or shapes of the datasets are not those the file was made with (layout_sha256)");
  }
  if (!faults.empty()) return faults;
  check_rows(columns, attributes, faults);
  check_places(columns, faults);
  if (!faults.empty()) return faults;
  check_offsets(columns, "/samples/offset", columns.rows<std::uint64_t>("/samples/offset", columns.num_samples(), 1)[0],
                false, faults);
  check_offsets(columns, "/commit/unit_begin", columns.num_samples(), true, faults);
  check_flags(columns, faults);
  const std::uint32_t stored = columns.rows<std::uint32_t>("/commit/plan_crc32c", 0, 1)[0],
                      found = columns.plan_checksum();
  if (faults.empty() && stored != found) {
    faults.push_back(
        fmt::format("the plan (/samples/offset, /commit/unit_begin) has crc32c {:08x}, not {:08x} as when it was "
                    "frozen",
                    found, stored));
  }
  return faults;
}

}  // namespace magister
