// See columns.h. `check` reads this file alone.
#include "tasks/score/columns.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/score/unread_counts.h"

namespace magister {

std::vector<ColumnSpec> score_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                      std::size_t num_labels) {
  std::vector<ColumnSpec> columns =
      sample_columns(num_samples, num_tokens, key_bytes, "tokens of sample i are offset[i] .. offset[i+1] of /tokens",
                     "the tokens as the model saw them");
  columns.push_back(score_column::kValue.spec(num_samples, num_labels == 1 ? 0 : num_labels,
                                              num_labels == 1
                                                  ? "the number that the model gives to the record"
                                                  : "a number for each label, in the order of the attribute `labels`"));
  return columns;
}

std::vector<ColumnSpec> verifier_columns(std::uint64_t num_samples, std::uint64_t key_bytes, bool classes,
                                         bool unread) {
  std::vector<ColumnSpec> columns =
      sample_columns(num_samples, 0, key_bytes, "no tokens are kept: a rule reads texts", "none");
  columns.push_back(score_column::kValue.spec(num_samples, 0, "1: the completion gives the answer, 0: not"));
  if (classes) columns.push_back(score_column::kAnswerClass.spec(num_samples));
  if (unread) columns.push_back(score_column::kUnread.spec(num_samples, 0, unread_comment()));
  return columns;
}

std::vector<ColumnSpec> answer_columns(std::uint64_t num_samples, bool kl, bool flops) {
  std::vector<ColumnSpec> columns = {score_column::kNumTokens.spec(num_samples)};
  if (kl) columns.push_back(score_column::kGuideKl.spec(num_samples));
  if (flops) columns.push_back(score_column::kFlops.spec(num_samples));
  return columns;
}

namespace {

bool has_scores(const ResultsReader& file, FaultList& faults) {
  bool right = score_column::kValue.fits(file.find(score_column::kValue));
  for (const Column<float>& column : {score_column::kGuideKl, score_column::kFlops})
    right = right && (file.find(column) == nullptr || column.fits(file.find(column)));
  if (!right)
    faults.add("dataset {} is missing, or it, {} or {} is not f32, one row a sample", score_column::kValue.path,
               score_column::kGuideKl.path, score_column::kFlops.path);
  const ColumnSpec* const unread = file.find(score_column::kUnread);
  if (unread == nullptr || (unread->type == ColumnType::kU8 && unread->width == 0)) return right;
  faults.add("dataset {} is not u8, one row a sample", score_column::kUnread.path);
  return false;
}

void check_scores(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::uint64_t width = std::max<std::uint64_t>(1, file.find(score_column::kValue)->width);
  const auto values = file.rows(score_column::kValue, unit.samples.begin, unit.samples.size(), width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      faults.add("unit {}: the score of sample {} is {}", unit.index, unit.samples.begin + i / width, values[i]);
  }
  if (file.find(score_column::kUnread) != nullptr) {
    for (const std::uint8_t one : file.rows(score_column::kUnread, unit.samples.begin, unit.samples.size())) {
      if (one >= kNumUnread)
        faults.add("unit {}: a text was not compared for reason {}, which is none", unit.index, one);
    }
  }
  for (const auto& [column, name] :
       {std::pair(score_column::kGuideKl, "KL"), std::pair(score_column::kFlops, "cost")}) {
    if (file.find(column) == nullptr) continue;
    for (const float one : file.rows(column, unit.samples.begin, unit.samples.size())) {
      if (!std::isfinite(one)) faults.add("unit {}: the {} of a text is {}", unit.index, name, one);
    }
  }
}

constexpr ColumnNames kNamesOfScores[] = {
    {.path = score_column::kValue.path, .attribute = "labels", .of_places = "labels"}};

}  // namespace

constinit const ResultsSchema kScoreSchema = {
    .format = "magister.score", .columns = has_scores, .rows = check_scores, .exported = {.names = kNamesOfScores}};

}  // namespace magister
