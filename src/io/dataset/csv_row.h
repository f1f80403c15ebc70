// Converts a row of CSV or TSV to one JSON object of strings under the header's names, so that fields mean the same in
// every format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "magister/io/dataset/dataset.h"

namespace magister {

class CsvColumns {
 public:
  // header: the first row. Throws Error(kData) for empty or repeated names and for a wanted field that is missing.
  CsvColumns(std::string_view header, char separator, const DatasetConfig& config, const std::string& where);

  // The wanted columns of a row, valid until the next call. Throws Error(kData) for a row with more or fewer fields
  // than the header.
  std::string_view as_json(std::string_view row, const std::string& where);

 private:
  void split(std::string_view row, const std::string& where);

  const char separator_;
  std::vector<std::string> names_;
  std::vector<bool> wanted_;
  std::vector<std::string> fields_;  // of the current row; only the first num_fields_ count
  std::size_t num_fields_ = 0;
  std::string json_;
};

}  // namespace magister
