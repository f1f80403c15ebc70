// Extracts from one line of JSONL the fields that a data set requests. No document tree is built, so memory does not
// depend on size and depth (except for fields that are paths).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "magister/io/dataset/dataset.h"

namespace magister {

// Keeps its buffers from line to line.
class JsonlParser {
 public:
  // unit: the word for a record in messages, "line" or "row".
  explicit JsonlParser(const DatasetConfig& config, const char* unit = "line");
  ~JsonlParser();

  // Fills key and text or tokens. `where` begins messages ("file:line"). Throws Error(kData).
  void parse(std::string_view line, const std::string& where, Record& record);

 private:
  class Events;
  std::unique_ptr<Events> events_;
};

// Throws Error(kData) unless the line is UTF-8 without NUL characters.
void check_text(std::string_view line, const std::string& where);

}  // namespace magister
