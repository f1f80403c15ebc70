// A row of CSV or TSV -> one JSON object of texts under the names of the header, so that fields mean the same in every format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "magister/io/dataset/dataset.h"

namespace magister {

class CsvColumns {
 public:
  // header: the first row. Throws Error(kData) for names that are empty or there twice, and where a wanted field is not there.
  CsvColumns(std::string_view header, char separator, const DatasetConfig& config, const std::string& where);

  // The wanted columns of a row, valid until the next call. Throws Error(kData) for rows with more or fewer fields.
  std::string_view as_json(std::string_view row, const std::string& where);

 private:
  void split(std::string_view row, const std::string& where);

  const char separator_;
  std::vector<std::string> names_;
  std::vector<bool> wanted_;
  std::vector<std::string> fields_;  // of the row that is read; the first num_fields_
  std::size_t num_fields_ = 0;
  std::string json_;
};

}  // namespace magister
