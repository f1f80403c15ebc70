// The datasets of an evaluation's results, and the rules that `check` applies to them.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// n records. A row has one element per method; pass_at and majority_at have one per count of each method. unread: a
// method reports texts that it did not compare.
std::vector<ColumnSpec> evaluate_columns(std::uint64_t num_records, std::uint64_t key_bytes, std::size_t num_methods,
                                         std::size_t num_pass, std::size_t num_majority, bool unread);

extern const ResultsSchema kEvaluateSchema;

}  // namespace magister
