// The interface between the program and magister_arrow.so, its plug-in for tables. It uses standard types only, and no
// exception crosses it. The program loads the plug-in when an experiment names a Parquet or Arrow file, so a machine
// without Arrow's library (80 MB) can do everything else.
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
  std::string problem;               // the library's message; for kNoColumn the name of the column
  std::vector<std::string> columns;  // for kNoColumn: the columns of the file
};

struct ArrowPart {
  std::uint64_t rows = 0, place = 0;  // place: a row group, a record batch, or a byte of a stream
};

struct ArrowField {
  std::string name;               // a column, or a path such as a.b[0].c
  std::vector<std::string> path;  // for a path: its names from the column down, "" for an entry of a list; else empty
};

struct ArrowRequest {
  std::string path;
  bool parquet = true;             // false: Arrow's IPC format, stream or file
  bool all_columns = false;        // true: binary values become null; false: only `fields` are read
  std::vector<ArrowField> fields;  // for a path only the nested columns on it are read
};

// One open table. A part is a row group of Parquet or a record batch of Arrow.
class ArrowTable {
 public:
  virtual ~ArrowTable() = default;
  // The next part; false after the last, or with a fault.
  virtual bool next_part(ArrowPart& part, ArrowFault& fault) noexcept = 0;
  // After it, next() gives rows of this part from `row` on.
  virtual bool seek(std::uint64_t part, std::uint64_t place, std::uint64_t row, ArrowFault& fault) noexcept = 0;
  // The next row as a JSON object of the fields' columns; false after the part's last row, or with a fault.
  virtual bool next(std::string& json, ArrowFault& fault) noexcept = 0;
};

// A column to write: per sample a value, a list, or a list of lists of `width` values.
struct ArrowColumn {
  enum class Type { kU8, kI32, kU32, kU64, kF32, kText };
  enum class Shape { kValue, kList, kListOfLists };
  std::string name;
  Type type = Type::kF32;
  Shape shape = Shape::kValue;
  std::uint64_t width = 0;
};

// A Parquet file while it is written. Samples are added column by column, one row group at a time.
class ArrowWriter {
 public:
  virtual ~ArrowWriter() = default;
  // Adds the column's data of the group: for strings `texts`, one per sample, else the bytes of all values. num_rows[i]
  // is the number of lists, or of values, of sample i.
  virtual bool add(std::size_t column, const std::vector<std::uint64_t>& num_rows, std::string_view values,
                   const std::vector<std::string>& texts, ArrowFault& fault) noexcept = 0;
  virtual bool end_group(ArrowFault& fault) noexcept = 0;
  virtual bool finish(ArrowFault& fault) noexcept = 0;
};

// The symbols that the program looks up; change their number when this file changes.
constexpr const char* kOpenTableSymbol = "magister_open_table_1";
using OpenArrowTable = bool (*)(const ArrowRequest& request, std::unique_ptr<ArrowTable>& table, ArrowFault& fault);
// sink takes the file's bytes in order; it returns false if it failed.
constexpr const char* kWriteTableSymbol = "magister_write_table_1";
using WriteArrowTable = bool (*)(const std::vector<ArrowColumn>& columns, std::function<bool(std::string_view)> sink,
                                 std::unique_ptr<ArrowWriter>& writer, ArrowFault& fault);

// A symbol of the plug-in, which is loaded at the first call and never unloaded. Throws Error(kConfig) with the
// commands that build the plug-in; `path` is the file that needs it.
void* arrow_symbol(const char* name, const std::string& path);

}  // namespace magister
