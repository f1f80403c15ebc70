// Which fields of a record an experiment reads: what formats with columns read of a file, and no more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"

namespace magister {

// Names or paths ("a.b[0].c"); nullopt: all of them, as for a task whose prompts are templates.
std::optional<std::vector<std::string>> wanted_fields(const DatasetConfig& config);

// Throws Error(kData): the columns lack `field`.
[[noreturn]] void fail_no_column(const std::string& where, const std::string& field,
                                 const std::vector<std::string>& columns);

}  // namespace magister
