#include "tasks/judge/columns.h"

#include "magister/run/unit_samples.h"

namespace magister {

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape) {
  using Extent = ColumnSpec::Extent;
  const std::uint64_t n = shape.num_samples;
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes, "rows of prompt i are offset[i] .. offset[i+1] of /tokens",
                     "the prompts as the judge saw them");
  columns.insert(
      columns.end(),
      {
          {"/judge/verdict", ColumnType::kI32, n, 0,
           "number of the most probable verdict; names: root attribute verdicts; -1: none, or several", "",
           Extent::kSamples},
          {"/judge/probability", ColumnType::kF32, n, 0, "of that verdict among all verdicts", "", Extent::kSamples},
          {"/judge/log_odds", ColumnType::kF32, n, 0, "of the first verdict against all others", "nat",
           Extent::kSamples},
          {"/judge/margin", ColumnType::kF32, n, 0, "the best verdict over the second", "nat", Extent::kSamples},
          {"/judge/mass", ColumnType::kF32, n, 0, "probability of all verdicts together in the whole distribution", "",
           Extent::kSamples},
          {"/judge/expected", ColumnType::kF32, n, 0,
           "sum of (number + 1) * probability among the verdicts: the expected score of a rubric", "",
           Extent::kSamples},
          {"/judge/class_logprob", ColumnType::kF32, n, shape.classes, "of each verdict in the whole distribution",
           "nat", Extent::kSamples},
          {"/judge/parse", ColumnType::kU8, n, 0,
           "0: ok; 1: low_mass, the model wanted to write something else; 2: unparsed, its reply holds no verdict; 3: "
           "truncated, its reply was cut off; 4: tie, several verdicts are the most probable ones",
           "", Extent::kSamples},
          {"/judge/order", ColumnType::kU8, n, 0, "of a pair: 0 as given, 1 with the answers exchanged", "",
           Extent::kSamples},
          {"/judge/prompt", ColumnType::kU8, n, 0, "number of the prompt that judged", "", Extent::kSamples},
          {"/judge/combined", ColumnType::kI32, n, 0,
           "verdict of all prompts, orders and judges on this text (a pair: as given); -1: undecided", "",
           Extent::kSamples},
          {"/judge/combined_probability", ColumnType::kF32, n, 0,
           "of it: among the verdicts, or its share of the votes", "", Extent::kSamples},
      });
  if (shape.reply_tokens > 0) {
    columns.push_back({"/judge/reply_id", ColumnType::kI32, n, shape.reply_tokens,
                       "tokens of the judge's reply, -1 behind its end", "", Extent::kSamples});
  }
  return columns;
}

}  // namespace magister
