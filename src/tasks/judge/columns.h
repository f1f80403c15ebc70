// The datasets of a judge's results: a sample a judged prompt. What `check` demands of them is in check.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// n samples of T prompt tokens in all; C verdicts; replies of at most reply_tokens, 0: none are written.
struct JudgeShape {
  std::uint64_t num_samples = 0, num_tokens = 0, classes = 2, key_bytes = 1, reply_tokens = 0;
};

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape);

// What `check` demands of verdicts.
extern const ResultsSchema kJudgeSchema;

}  // namespace magister
