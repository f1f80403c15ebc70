// A results file opened for reading: attributes and columns by name, rows in pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/posix_file.h"
#include "io/results_layout.h"

namespace magister {

class ResultsReader {
 public:
  // Throws Error(kInputOutput) or Error(kData) for what is no results file.
  explicit ResultsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const Attributes& attributes() const { return attributes_; }
  const std::vector<PlacedColumn>& columns() const { return columns_; }

  const AttributeValue* find_attribute(const std::string& name) const;
  // Throw Error(kData) when the attribute is absent or of another type.
  std::string text(const std::string& name) const;
  std::uint64_t number(const std::string& name) const;
  bool complete() const;

  const PlacedColumn* find(const std::string& column) const;
  const PlacedColumn& at(const std::string& column) const;  // Error(kData) when absent
  std::vector<std::byte> read_bytes(const PlacedColumn& column, std::uint64_t begin, std::uint64_t end) const;
  template <typename T>
  std::vector<T> read(const std::string& column, std::uint64_t begin, std::uint64_t end) const {
    const PlacedColumn& placed = at(column);
    check_type(placed, sizeof(T));
    std::vector<T> values((end - begin) * std::max<std::uint64_t>(placed.spec.width, 1));
    read_into(placed, begin, end, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // /teacher/top_logprob as f32 whatever its stored type.
  std::vector<float> read_logprobs(std::uint64_t begin, std::uint64_t end) const;

  std::uint64_t num_units() const { return at("/commit/done").spec.num_rows; }
  // Error(kData) where the borders go backwards or outside.
  Unit unit(std::uint64_t index) const;
  std::uint32_t checksum(const Unit& unit) const;

 private:
  void check_type(const PlacedColumn& column, std::size_t element_bytes) const;
  void read_into(const PlacedColumn& column, std::uint64_t begin, std::uint64_t end, std::span<std::byte> out) const;
  std::string path_;
  Attributes attributes_;
  std::vector<PlacedColumn> columns_;
  PosixFile file_;
};

}  // namespace magister
