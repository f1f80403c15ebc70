// Exports of complete results as tables: JSON lines, CSV, Parquet. A kind of tasks says what its columns hold
// (ExportedColumns, in its ResultsSchema), and may offer formats of its own (TaskKind::exports). All functions: local,
// one process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/io/results/reader.h"

namespace magister {

// Names for the numbers of a column of samples that are codes (u8 or i32), or for the places in its rows. They get a
// column of their own after the numbers, since a reader would take codes for values: the verdict 1 is "no" in one file
// and "B" in another.
struct ColumnNames {
  const char* path;
  const char* names = nullptr;      // by code, separated by commas: "stop,length"; null: `attribute` holds them
  const char* attribute = nullptr;  // of the root: names separated by commas, or a JSON list
  // Column of u8: where it is not 0, the number does not count and has no name; null: all numbers count.
  const char* sound_where_zero = nullptr;
  // The name of the new column, for names of places: the same list in every row. null: names of codes, in the column
  // <last name of path>_name.
  const char* of_places = nullptr;
};

// Another name of a column in tables.
struct TableName {
  const char* path;
  const char* name;
};

// A column whose stored bytes are exported as numbers.
struct DecodedColumn {
  std::string path;         // the exported name is made from it
  std::uint64_t width = 0;  // numbers per row
  std::function<void(std::span<const std::byte> rows, std::vector<std::int32_t>& numbers)> decode;
};

// Facts about a kind's columns that exports need. Without them numbers are written as they are, under the last names of
// their paths.
struct ExportedColumns {
  std::span<const ColumnNames> names{};
  std::span<const TableName> parquet_names{};  // names that trainers know, in Parquet files
  // Error(kData) if the file contradicts itself; null: no column is decoded.
  std::optional<DecodedColumn> (*decoded)(const ResultsReader& file, const ColumnSpec& column) = nullptr;
};

// Opens the results; Error(kData) unless they are complete.
ResultsReader open_complete_results(const std::string& path);

// Writes one JSON object or one CSV row per sample, in order, to the file `out` or to standard output ("-"):
//   {"key": text, "source_index": int, "token_ids": [int], "top_id": [[int]], "logsumexp": [float], ...}
// (each further column of the file under its last name). Floats are the shortest decimals that read back as the same
// float32; NaN and infinities are null. `out` is written as <out>.creating, synced and renamed: complete or absent. An
// existing `out` is Error(kInputOutput).
// CSV has the same names in its first row and lists as JSON in one cell; NaN and infinities are empty outside lists.
void export_jsonl(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);
void export_csv(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);

// Writes one row per sample, in order, to the new Parquet file `out`: key, source_index, input_ids (TRL's and
// DistillKit's name of /tokens/id), assistant_masks (TRL's), and every further column under its last name or that of
// ExportedColumns::parquet_names. f16 is written as f32. Needs the plug-in with Arrow's library.
void export_parquet(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);

// For formats that are text: calls `write` with a function that takes the next piece of the text, and puts the pieces
// into the new file `out` (as export_jsonl() does) or into standard output ("-").
using TextSink = std::function<void(std::string_view piece)>;
void write_text(const std::string& out, const std::function<void(const TextSink& sink)>& write);

// Makes the end of `line`, from the byte `begin` on, one cell of CSV: with quotes where RFC 4180 needs them. A number
// that is null becomes an empty cell.
void quote_csv_cell(std::string& line, std::size_t begin, bool is_text);

// A format of `export --to`.
struct ExportFormat {
  const char* name;
  // True: standard output is allowed, and `write` then gets "-" for `out` and writes there itself (write_text()).
  bool is_text = false;
  // Writes the complete results to `out`. Throws Error(kData) for results that do not fit the format.
  void (*write)(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);
};

// The formats for every kind of results.
inline constexpr ExportFormat kTableFormats[] = {
    {"jsonl", true, export_jsonl}, {"csv", true, export_csv}, {"parquet", false, export_parquet}};

}  // namespace magister
