// Columns and labels -> rows -> summary.
#include "tasks/judge/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"
#include "magister/run/summary_csv.h"
#include "tasks/judge/columns.h"
#include "tasks/judge/labels.h"
#include "tasks/judge/summary.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<std::string> names_of(const JudgePrompts& prompts) {
  std::vector<std::string> names;
  for (const VerdictClass& one : prompts.classes()) names.push_back(one.name);
  return names;
}

// Reads the samples of the file as rows, in blocks: 10^8 verdicts would be 4 GB at once.
class RowReader {
 public:
  explicit RowReader(const JudgeReport& report) : report_(report) { advance(); }

  const JudgedRow* row() const { return has_row_ ? &row_ : nullptr; }  // null: no more rows
  // The combined verdict of all prompts, orders and judges on the row's text.
  std::int32_t combined() const { return combined_[at_ - 1]; }

  void advance() {
    if (at_ == source_.size()) load();
    has_row_ = at_ < source_.size();
    if (!has_row_) return;
    row_ = {};
    const std::uint64_t sample = first_ + at_;
    row_.sample = sample;
    row_.record = source_[at_];
    row_.pair = sample / report_.prompts.orders();
    row_.verdict = verdict_[at_];
    row_.parse = parse_[at_];
    row_.swapped = order_[at_] != 0;
    // A verdict that was read from a reply has no odds.
    row_.probability_first = std::isnan(log_odds_[at_]) ? (row_.verdict == 0 ? 1.0 : 0.0)
                                                        : 1.0 / (1.0 + std::exp(-static_cast<double>(log_odds_[at_])));
    row_.expected = expected_[at_];
    ++at_;
  }

 private:
  static constexpr std::uint64_t kBlock = 1 << 14;

  template <typename T>
  void read(const Column<T>& column, std::vector<T>& values, std::uint64_t count) const {
    values.resize(count);
    report_.read(column.path, first_, std::as_writable_bytes(std::span(values)));
  }

  void load() {
    first_ += source_.size();
    at_ = 0;
    const std::uint64_t count = std::min(kBlock, report_.num_samples - first_);
    read(Column<std::uint64_t>{"/samples/source_index"}, source_, count);
    read(judge_column::kVerdict, verdict_, count);
    read(judge_column::kCombined, combined_, count);
    read(judge_column::kLogOdds, log_odds_, count);
    read(judge_column::kExpected, expected_, count);
    read(judge_column::kParse, parse_, count);
    read(judge_column::kOrder, order_, count);
  }

  const JudgeReport& report_;
  std::uint64_t first_ = 0;  // first sample of the block
  std::size_t at_ = 0;       // index in the block of the row after row_
  std::vector<std::uint64_t> source_;
  std::vector<std::int32_t> verdict_, combined_;
  std::vector<float> log_odds_, expected_;
  std::vector<std::uint8_t> parse_, order_;
  JudgedRow row_;
  bool has_row_ = false;
};

// visit(row with its label and likelihood, combined verdict of its text). For a pair's second order the label is
// exchanged.
template <typename Visit>
void for_each_row(const JudgeReport& report, const Visit& visit) {
  RowReader rows(report);
  const JudgeLabels labels(report.config, report.prompts.classes());
  const bool likelihoods = report.answers != nullptr && report.prompts.orders() == 1;
  if (labels.are_given() || likelihoods) {
    report.dataset.for_each(
        report.dataset.records(),
        [&](Record&& record) {
          const std::int32_t label = labels.are_given() ? labels.of(record).value_or(-1) : -1;
          for (std::uint64_t i = 0; rows.row() != nullptr && rows.row()->record == record.source_index;
               rows.advance(), ++i) {
            JudgedRow row = *rows.row();
            row.label = label >= 0 && report.prompts.orders() == 2 && row.swapped ? 1 - label : label;
            row.has_likelihood = likelihoods;
            if (likelihoods) row.likelihood = report.answers->mean_logprob(record, i / report.prompts.group());
            fail_point("judge.summary.row");
            visit(row, rows.combined());
          }
        },
        report.poll);
  }
  for (; rows.row() != nullptr && !report.poll(); rows.advance()) {
    fail_point("judge.summary.row");
    visit(*rows.row(), rows.combined());
  }
}

}  // namespace

bool write_judge_summary(const JudgeReport& report) {
  const std::vector<std::string> names = names_of(report.prompts);
  const std::string folder = fs::path(report.results_path).parent_path().string();
  JudgeSummary all(names, {report.prompts.orders() == 2, report.config.mode == JudgeMode::kRubric}, folder);
  JudgeSummary texts(names, {}, folder);  // one row per text, with its combined verdict
  std::uint64_t undecided = 0;
  const bool combines = report.prompts.group() > 1 || !report.config.panel.empty();
  for_each_row(report, [&](const JudgedRow& row, std::int32_t combined) {
    all.add(row);
    if (!combines || row.sample % report.prompts.group() != 0) return;
    JudgedRow text = row;  // the first order: labels as given
    text.verdict = combined;
    text.parse = combined < 0 ? 2 : 0;
    undecided += combined < 0;
    texts.add(text);
  });
  if (report.poll()) return false;
  if (const std::string warning = all.low_mass_warning(); !warning.empty())
    log_warning("{}: {}", report.config.name, warning);
  ordered_json summary = all.json();
  if (combines) {
    summary["combined"] = texts.json();
    summary["combined"].erase("parse");
    summary["combined"]["undecided"] = undecided;
  }
  if (report.config.read == JudgeRead::kSubstring && report.config.method == JudgeMethod::kDecode) {
    // The number that scripts with this rule report: a reply without a verdict counts as the last one, "no".
    summary["compat_share_of_" + names.front()] =
        all.num_rows() == 0
            ? ordered_json()
            : ordered_json(static_cast<double>(all.rows_with_verdict(0)) / static_cast<double>(all.num_rows()));
  }
  write_whole_file(fs::path(report.results_path).replace_extension(".summary.json").string(), summary.dump(2) + "\n");
  write_whole_file(fs::path(report.results_path).replace_extension(".summary.csv").string(), summary_csv(summary));
  report.log.event("summary", summary);
  log_info("{}: {}", report.config.name, summary.dump());
  return true;
}

}  // namespace magister
