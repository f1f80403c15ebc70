// Columns of the results of a score task, and the rules that `check` tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// num_labels: number of labels of the model; /score/value has them in order.
std::vector<ColumnSpec> score_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                      std::size_t num_labels);

// Columns of a verifier. classes: it extracts answers; unread: it reports texts that it did not compare.
std::vector<ColumnSpec> verifier_columns(std::uint64_t num_samples, std::uint64_t key_bytes, bool classes, bool unread);

// Columns for texts of a generate task, in addition to one of the two above. kl: the texts were guided; flops: their
// cost is known.
std::vector<ColumnSpec> answer_columns(std::uint64_t num_samples, bool kl, bool flops);

extern const ResultsSchema kScoreSchema;

}  // namespace magister
