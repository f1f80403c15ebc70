// ResultsFields: a sample of a results file as a record with fields, for a task that goes on with what an earlier one
// has written: `key`; every text and every single number of the sample under the last name of its column; the fields of
// the record that it was made from (kRecordGroup), with `record_` before a name that is taken. Three are easier to read
// than the codes in the file: `finished` is false for a text that was cut off by its length, and `verdict` and
// `combined` are the names of verdicts, or null.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/reader.h"

namespace magister {

// /samples/key of a sample, without padding.
std::string sample_key(const ResultsReader& file, std::uint64_t sample);

class ResultsFields {
 public:
  // keep: see DatasetConfig. Keeps a reference to file. Throws Error(kData) for a field that the file does not have.
  ResultsFields(const ResultsReader& file, const std::vector<std::pair<std::string, std::string>>& keep);

  nlohmann::ordered_json of(std::uint64_t sample);
  bool filters() const { return !rules_.empty(); }
  // True if the sample fits all rules. Reads only the fields that they name.
  bool is_kept(std::uint64_t sample);

 private:
  struct Field {
    std::string name;
    const ColumnSpec* column;
    std::unique_ptr<ResultsTextColumn> text{};  // for texts
    std::vector<std::string> names{};           // of its codes; empty: a number
    bool is_finished = false;                   // made from finish_reason
  };
  struct Rule {
    std::size_t field;
    std::string relation, value;  // "=", "!=", ">=", "<="
  };
  void add(const std::string& name, const ColumnSpec& column);
  nlohmann::ordered_json value(Field& field, std::uint64_t sample);
  nlohmann::ordered_json number(const ColumnSpec& column, std::uint64_t sample) const;

  const ResultsReader& file_;
  std::vector<Field> fields_;
  std::vector<Rule> rules_;
};

}  // namespace magister
