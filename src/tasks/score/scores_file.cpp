#include "magister/tasks/score/scores_file.h"

#include <algorithm>
#include <numeric>

#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "tasks/score/columns.h"

namespace magister {

const char* const ScoresFile::kUnreadColumn = score_column::kUnread.path;

ScoresFile::ScoresFile(const std::string& path, const Dataset& dataset) : file_(path) {
  MAGISTER_CHECK(file_.complete() && file_.text("format") == kScoreSchema.format, ExitCode::kData,
                 "{}: is not a complete file of scores (there is nothing to evaluate); run its score task first",
                 printable(path));
  const ColumnSpec& value = file_.column(score_column::kValue);
  MAGISTER_CHECK(value.width == 0, ExitCode::kData,
                 "{}: has {} numbers a record, one for each label (which of them says right is not known); evaluate a "
                 "verifier or a reward model",
                 printable(path), value.width);
  const IndexRange slice = dataset.records();
  MAGISTER_CHECK(
      file_.text("dataset_sha256") == dataset.sha256() && file_.number("slice_begin") == slice.begin &&
          file_.number("slice_end") == slice.end,
      ExitCode::kData,
      "{}: its scores are of other records than those of the first score task (dataset_sha256 is {}, there "
      "{}; records {} to {}, there {} to {}; methods are compared on the same questions); give the tasks the "
      "same data, limit and slice",
      printable(path), file_.text("dataset_sha256").substr(0, 12), dataset.sha256().substr(0, 12),
      file_.number("slice_begin"), file_.number("slice_end"), slice.begin, slice.end);
  const bool whole =
      slice.size() == 0 ? file_.num_samples() == 0 : file_.num_samples() > 0 && file_.num_samples() % slice.size() == 0;
  MAGISTER_CHECK(whole, ExitCode::kData,
                 "{}: has {} scores for {} records (each must have as many as another); score whole records",
                 printable(path), file_.num_samples(), slice.size());
  texts_ = file_.num_samples() / std::max<std::uint64_t>(1, slice.size());
  of_model_ = file_.attribute("labels") != nullptr;
  const auto has = [this](const auto& column) {
    if (file_.find(column) != nullptr) file_.column(column);  // of the right type
    return file_.find(column) != nullptr;
  };
  classes_ = has(score_column::kAnswerClass);
  tokens_ = has(score_column::kNumTokens);
  guided_ = has(score_column::kGuideKl);
  flops_ = has(score_column::kFlops);
  unread_ = has(score_column::kUnread);
}

void ScoresFile::check(const Communicator& world) const { CheckedUnits(file_).require_all(world); }

std::vector<RecordScores> ScoresFile::read(IndexRange records) const {
  const std::uint64_t first = records.begin * texts_, count = records.size() * texts_;
  const auto rows = [&]<typename T>(bool there, const Column<T>& column) {
    return there ? file_.rows(column, first, count) : std::vector<T>();
  };
  const auto value = file_.rows(score_column::kValue, first, count);
  const auto classes = rows(classes_, score_column::kAnswerClass);
  const auto tokens = rows(tokens_, score_column::kNumTokens);
  const auto kl = rows(guided_, score_column::kGuideKl);
  const auto flops = rows(flops_, score_column::kFlops);
  const auto unread = rows(unread_, score_column::kUnread);
  std::vector<RecordScores> all(records.size());
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i * texts_), end = at + static_cast<std::ptrdiff_t>(texts_);
    RecordScores& one = all[i];
    one.value.assign(value.begin() + at, value.begin() + end);
    if (classes_) one.answer_class.assign(classes.begin() + at, classes.begin() + end);
    for (const std::int32_t number : one.answer_class) {
      MAGISTER_CHECK(number >= -1 && number < static_cast<std::int64_t>(texts_), ExitCode::kData,
                     "{}: a text of record {} has the answer class {}, and the record {} texts (the file is damaged); "
                     "run check",
                     printable(file_.path()), records.begin + i, number, texts_);
    }
    for (std::uint64_t text = i * texts_; unread_ && text < (i + 1) * texts_; ++text) {
      MAGISTER_CHECK(unread[text] < kNumUnread, ExitCode::kData,
                     "{}: a text of record {} was not compared for reason {}, and there are {} (the file is damaged); "
                     "run check",
                     printable(file_.path()), records.begin + i, unread[text], kNumUnread);
      ++one.unread[unread[text]];
    }
    const auto mean = [&](const auto& values) {
      return std::accumulate(values.begin() + at, values.begin() + end, 0.0) / static_cast<double>(texts_);
    };
    if (tokens_) one.mean_tokens = mean(tokens);
    if (guided_) one.mean_guide_kl = mean(kl);
    if (flops_) one.mean_flops = mean(flops);
  }
  return all;
}

}  // namespace magister
