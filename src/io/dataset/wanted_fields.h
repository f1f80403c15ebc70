// The fields of a record that an experiment reads. Formats with columns read only these.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"

namespace magister {

// Names or paths ("a.b[0].c"); nullopt: all fields, for a task whose prompts are templates.
std::optional<std::vector<std::string>> wanted_fields(const DatasetConfig& config);

// Throws Error(kData), because `columns` has no `field`.
[[noreturn]] void fail_no_column(const std::string& where, const std::string& field,
                                 const std::vector<std::string>& columns);

}  // namespace magister
