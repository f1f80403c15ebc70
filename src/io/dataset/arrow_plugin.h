// What stands between the program and magister_arrow.so, its plug-in for tables: standard types alone, and no exception crosses.
// The program loads it when an experiment names a Parquet or Arrow file, so a machine without Arrow's library (80 MB) runs all else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

struct ArrowFault {
  enum class Kind { kNone, kData, kInputOutput, kNoColumn };
  Kind kind = Kind::kNone;
  std::string problem;               // in the library's words; kNoColumn: the name of the column
  std::vector<std::string> columns;  // kNoColumn: what the file has
};

struct ArrowPart {
  std::uint64_t rows = 0, place = 0;  // place: a row group, a record batch, or a byte of a stream
};

struct ArrowField {
  std::string name;               // a column, or a path such as a.b[0].c
  std::vector<std::string> path;  // of a path: its names from the column down, "" for an entry of a list; else empty
};

struct ArrowRequest {
  std::string path;
  bool parquet = true;             // else Arrow's IPC format, stream or file
  bool all_columns = false;        // binary values are null then; else:
  std::vector<ArrowField> fields;  // of a path only the columns inside are read
};

// One open table. A row group of Parquet or a record batch of Arrow is a part.
class ArrowTable {
 public:
  virtual ~ArrowTable() = default;
  // The parts in order; false at their end, or with a fault.
  virtual bool next_part(ArrowPart& part, ArrowFault& fault) noexcept = 0;
  // Then next() gives rows of this part from `row` on.
  virtual bool seek(std::uint64_t part, std::uint64_t place, std::uint64_t row, ArrowFault& fault) noexcept = 0;
  // A row as a JSON object of the fields' columns; false where the part has no more, or with a fault.
  virtual bool next(std::string& json, ArrowFault& fault) noexcept = 0;
};

// A column that is written, with a value, a list, or a list of lists of `width` values for each sample.
struct ArrowColumn {
  enum class Type { kU8, kI32, kU32, kU64, kF32, kText };
  enum class Shape { kValue, kList, kListOfLists };
  std::string name;
  Type type = Type::kF32;
  Shape shape = Shape::kValue;
  std::uint64_t width = 0;
};

// A Parquet file in the making. Samples are added column by column, a row group at a time.
class ArrowWriter {
 public:
  virtual ~ArrowWriter() = default;
  // The column's part of the group: of texts one a sample, else the bytes of its values, num_rows[i] lists' or values' worth
  // for sample i.
  virtual bool add(std::size_t column, const std::vector<std::uint64_t>& num_rows, std::string_view values,
                   const std::vector<std::string>& texts, ArrowFault& fault) noexcept = 0;
  virtual bool end_group(ArrowFault& fault) noexcept = 0;
  virtual bool finish(ArrowFault& fault) noexcept = 0;
};

// The symbols that the program looks for; their number changes with this file.
constexpr const char* kOpenTableSymbol = "magister_open_table_1";
using OpenArrowTable = bool (*)(const ArrowRequest& request, std::unique_ptr<ArrowTable>& table, ArrowFault& fault);
// sink: takes the file's bytes in order; false: it could not.
constexpr const char* kWriteTableSymbol = "magister_write_table_1";
using WriteArrowTable = bool (*)(const std::vector<ArrowColumn>& columns, std::function<bool(std::string_view)> sink,
                                 std::unique_ptr<ArrowWriter>& writer, ArrowFault& fault);

// A symbol of the plug-in, which is loaded when the first is asked for and never unloaded. Throws Error(kConfig) with the commands
// that bring it, for the file that needs it.
void* arrow_symbol(const char* name, const std::string& path);

}  // namespace magister
