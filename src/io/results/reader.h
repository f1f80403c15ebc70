// ResultsReader: a results file opened by the tools, complete or partial, of which nothing is known yet. What it hands out
// was checked for type and place; whether the values make sense is the business of check_results().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/results/columns.h"
#include "io/results/layout.h"

namespace magister {

class ResultsReader {
 public:
  // Throws Error(kInputOutput) for what is no file, Error(kData) for what is not a results file.
  explicit ResultsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const Attributes& attributes() const { return attributes_; }
  const ResultsColumns& columns() const { return columns_; }

  // Root attributes; throw Error(kData) when absent or of another type.
  const std::string& text(const std::string& name) const;
  std::uint64_t number(const std::string& name) const;
  bool complete() const;
  // A column that the file must have, with this type; throws Error(kData).
  const PlacedColumn& column(const std::string& path, ColumnType type) const;

 private:
  std::string path_;
  Attributes attributes_;
  ResultsColumns columns_;
};

// Null when there is none of that name.
const AttributeValue* find_attribute(const Attributes& attributes, const std::string& name);

// `count` values of an f32 or f16 column as f32.
void to_floats(ColumnType type, std::span<const std::byte> bytes, std::vector<float>& values);

}  // namespace magister
