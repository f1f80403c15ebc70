// Names and decoded numbers that exports write after stored columns, or in place of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/results/export.h"

namespace magister {

// The names of one column's numbers, or of the places in its rows.
struct NamedColumn {
  std::string name;                // of the new column: "verdict_name", "labels"
  std::string path;                // path of the column of numbers
  std::vector<std::string> names;  // indexed by number, or by place
  bool of_places = false;          // names of places: the same list in every row
  std::string sound_where_zero;    // as in ColumnNames; empty: all numbers count
};

// nullopt for numbers that are values. `column` is one of the file's.
std::optional<NamedColumn> names_beside(const ResultsReader& file, const ExportedColumns& columns,
                                        const ColumnSpec& column);
// For one sample: a name, or null if the number has none (-1: undecided); for a row of several numbers a list.
nlohmann::json names_in_row(const ResultsReader& file, const NamedColumn& named, std::uint64_t sample);

// nullopt: the numbers are exported as they are stored.
inline std::optional<DecodedColumn> decoded_column(const ResultsReader& file, const ExportedColumns& columns,
                                                   const ColumnSpec& column) {
  return columns.decoded == nullptr ? std::nullopt : columns.decoded(file, column);
}

// True if a column of strings holds JSON, which JSON lines contain as JSON and not as a string.
bool holds_json(const ColumnSpec& column);

// The last name of a column's path.
std::string column_name(const std::string& path);

// Chooses a column's exported name: its last name, or for a record's field (kRecordGroup) whose name is taken "record_"
// and its name.
class ExportedNames {
 public:
  std::string name_of(const std::string& path, std::string name);

 private:
  std::vector<std::string> taken_;
};

}  // namespace magister
