#include "tasks/judge/columns.h"

#include "magister/run/unit_samples.h"

namespace magister {

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape) {
  using namespace judge_column;
  const std::uint64_t n = shape.num_samples;
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes, "rows of prompt i are offset[i] .. offset[i+1] of /tokens",
                     "the prompts as the judge saw them");
  columns.insert(columns.end(), {kVerdict.spec(n), kProbability.spec(n), kLogOdds.spec(n), kMargin.spec(n),
                                 kMass.spec(n), kExpected.spec(n), kClassLogprob.spec(n, shape.classes), kParse.spec(n),
                                 kOrder.spec(n), kPrompt.spec(n), kCombined.spec(n), kCombinedProbability.spec(n)});
  if (shape.reply_tokens > 0) columns.push_back(kReplyId.spec(n, shape.reply_tokens));
  return columns;
}

}  // namespace magister
