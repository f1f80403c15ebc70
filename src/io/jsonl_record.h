// One line of JSONL -> the fields that a data set asks for. No document tree is built: depth and size cost nothing.
#pragma once

#include <string>
#include <string_view>

#include "magister/io/dataset.h"

namespace magister {

// Fills key and text or tokens. `where` is "file:line" for messages. Throws Error(kData).
void parse_jsonl_record(std::string_view line, const DatasetConfig& config, const std::string& where, Record& record);

}  // namespace magister
