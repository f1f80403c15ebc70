// The datasets of a score task's results, and what `check` demands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// n samples of T tokens; labels: of the model, in order.
std::vector<ColumnSpec> score_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                      std::size_t num_labels);

// Of a verifier: classes where it extracts answers, unread where it tells texts that it did not compare.
std::vector<ColumnSpec> verifier_columns(std::uint64_t num_samples, std::uint64_t key_bytes, bool classes, bool unread);

// Of texts of a generate task, beside either: kl where they were guided.
std::vector<ColumnSpec> answer_columns(std::uint64_t num_samples, bool kl, bool flops);

extern const ResultsSchema kScoreSchema;

}  // namespace magister
