// Names for numbers that stand for something else than themselves, which a reader of an export would take for values: the verdict 1 is "no" in one
// file and "B" in another. They stand beside the numbers, in columns of their own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/results/reader.h"

namespace magister {

// Names of one column's numbers, or of a row's places.
struct NamedColumn {
  std::string name;                // of the column of names: "verdict_name", "labels"
  std::string path;                // of the numbers
  std::vector<std::string> names;  // by number, or by place
  bool of_places = false;          // the names themselves, the same in every row
  std::string
      sound_where_zero;  // a column of u8: elsewhere the number does not count, and has no name; empty: everywhere
};

// Nothing for numbers that are what they say. `column` is one of the file's.
std::optional<NamedColumn> names_beside(const ResultsReader& file, const ColumnSpec& column);
// Of a sample: a name, or null where the number has none (-1: undecided); of a row of several numbers a list.
nlohmann::json names_in_row(const ResultsReader& file, const NamedColumn& named, std::uint64_t sample);

// Whether a column of texts holds JSON, which JSON lines write as such.
bool holds_json(const ColumnSpec& column);

// The last name of a column, or of a record's field (/record/...) that another column is called already "record_" and its name.
class ExportedNames {
 public:
  std::string name_of(const std::string& path, std::string name);

 private:
  std::vector<std::string> taken_;
};

}  // namespace magister
