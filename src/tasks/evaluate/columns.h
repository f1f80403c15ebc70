// The datasets of an evaluation's results, and what `check` demands of them.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// n records; a row has an element for each method, and for pass_at and majority_at one for each count of each method. unread: a method tells texts
// that it did not compare.
std::vector<ColumnSpec> evaluate_columns(std::uint64_t num_records, std::uint64_t key_bytes, std::size_t num_methods,
                                         std::size_t num_pass, std::size_t num_majority, bool unread);

extern const ResultsSchema kEvaluateSchema;

}  // namespace magister
