// The datasets of a judge's results: one sample per judged prompt. check.cpp has the rules that `check` applies.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// n samples with T prompt tokens in total; C verdicts; replies of at most reply_tokens (0: no replies).
struct JudgeShape {
  std::uint64_t num_samples = 0, num_tokens = 0, classes = 2, key_bytes = 1, reply_tokens = 0;
};

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape);

// The rules that `check` applies to verdicts.
extern const ResultsSchema kJudgeSchema;

}  // namespace magister
