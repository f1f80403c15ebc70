// The completions of a record are a group of samples without tokens; a unit reads its records again and verifies them.
// A rule verifies millions of short texts per second, which costs less than a pass of a model, so each rank uses one
// thread.
#include "tasks/score/verify.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/run/shard_model.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/tasks/generate/record_answers.h"
#include "magister/tasks/score/unread_counts.h"
#include "tasks/score/answers.h"
#include "tasks/score/columns.h"

namespace magister {
namespace {

using nlohmann::ordered_json;
constexpr std::uint64_t kCommitTexts = 1024;  // texts of one commit

struct Scores {
  std::vector<float> value;
  std::vector<std::int32_t> answer_class;
  std::vector<std::uint8_t> unread;
  ScoredAnswers::Columns of_answers;
};

class VerifierJob final : public TaskJob {
 public:
  VerifierJob(const ScoreConfig& config, const TaskInputs& inputs)
      : config_(config), inputs_(inputs), verifier_(config.verifier->rule.options) {
    if (!config.answers.empty()) answers_.emplace(config, inputs);
  }

  Awaited awaited() const override { return {.results = answers_ && !answers_->exist()}; }
  void open_results() override {
    if (answers_) answers_->open();
  }
  Attributes identity() override { return answers_ ? answers_->identity() : Attributes(); }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  void work(const ModelRun& run) override {
    run_units_of_one_thread(run, [this](const Unit& unit) { return columns_of(unit); });
  }
  bool report(const ResultsFile& file, const PlanNumbers& plan) override {
    return !verifier_.reports_unread() ||
           report_unread(inputs_.context, config_.name, file, score_column::kUnread.path, plan.num_samples, 1);
  }

 private:
  // Number of completions per record.
  std::uint64_t group() const { return answers_ ? answers_->texts_a_record() : 1; }
  std::vector<std::string> completions_of(const Record& record) const;
  // answer: a right answer; classes: the answers of the completions of the record so far.
  void add_class(const std::string& completion, const std::string& answer,
                 std::vector<std::optional<std::string>>& classes, Scores& scores) const;
  void add_scores(const Record& record, Scores& scores) const;
  std::vector<ColumnBytes> columns_of(const Unit& unit) const;

  const ScoreConfig& config_;
  const TaskInputs inputs_;
  const Verifier verifier_;
  std::optional<ScoredAnswers> answers_;  // set if a generate task wrote the completions
};

TaskResults VerifierJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns =
      verifier_columns(plan.num_samples, plan.key_bytes, verifier_.extracts(), verifier_.reports_unread());
  if (answers_) {
    for (ColumnSpec& column : answers_->specs(plan.num_samples)) results.columns.push_back(std::move(column));
  }
  results.default_plot_column = score_column::kValue.path;
  return results;
}

std::vector<std::string> VerifierJob::completions_of(const Record& record) const {
  if (answers_) return answers_->of(record);
  const std::string& field = config_.verifier->completion_field;
  const ordered_json& value = record_field(record, field);
  MAGISTER_CHECK(value.is_string(), ExitCode::kData,
                 "{}: {} is {} (a text is verified); fix this line or name another field", record.where,
                 printable(field), value.type_name());
  return {value.get<std::string>()};
}

SampleRules VerifierJob::rules() {
  SampleRules rules;
  rules.group_samples = group();
  rules.unit_samples = group() * std::max<std::uint64_t>(1, kCommitTexts / group());
  rules.unit_tokens = ~std::uint64_t{0} >> 1;
  rules.may_cut = false;
  rules.encode = [this](const Record& record) {
    right_answers(record, config_.verifier->rule.answer_field);
    return std::vector<SampleTokens>(completions_of(record).size(), SampleTokens(std::vector<TokenId>{}));
  };
  return rules;
}

void VerifierJob::add_class(const std::string& completion, const std::string& answer,
                            std::vector<std::optional<std::string>>& classes, Scores& scores) const {
  classes.push_back(verifier_.answer_class(completion, answer));
  const auto same = std::find(classes.begin(), classes.end(), classes.back());
  scores.answer_class.push_back(classes.back() ? static_cast<std::int32_t>(same - classes.begin()) : -1);
}

void VerifierJob::add_scores(const Record& record, Scores& scores) const {
  const std::vector<std::string> answers = right_answers(record, config_.verifier->rule.answer_field);
  std::vector<std::optional<std::string>> classes;
  for (const std::string& completion : completions_of(record)) {
    const Judged judged = verified(verifier_, completion, answers);
    scores.value.push_back(static_cast<float>(judged.score));
    scores.unread.push_back(static_cast<std::uint8_t>(judged.unread));
    if (verifier_.extracts()) add_class(completion, answers.front(), classes, scores);
  }
}

std::vector<ColumnBytes> VerifierJob::columns_of(const Unit& unit) const {
  Scores scores;
  for_records_of(unit, group(), inputs_.dataset, [&](const Record& record, IndexRange texts) {
    fail_point("score.verify.record");
    add_scores(record, scores);  // of all completions: units have whole records (rules())
    if (answers_) answers_->add(record, texts, scores.of_answers);
  });
  MAGISTER_CHECK(scores.value.size() == unit.samples.size(), ExitCode::kData,
                 "{}: unit {} has {} samples, and its records have {} completions now (the data were changed while the "
                 "task ran); run it again with --fresh",
                 config_.name, unit.index, unit.samples.size(), scores.value.size());
  std::vector<ColumnBytes> columns;
  columns.push_back(samples_column(score_column::kValue, scores.value));
  if (verifier_.extracts()) columns.push_back(samples_column(score_column::kAnswerClass, scores.answer_class));
  if (verifier_.reports_unread()) columns.push_back(samples_column(score_column::kUnread, scores.unread));
  if (answers_) answers_->append(scores.of_answers, columns);
  return columns;
}

}  // namespace

std::unique_ptr<TaskJob> make_verifier_job(const ScoreConfig& config, const TaskInputs& inputs) {
  return std::make_unique<VerifierJob>(config, inputs);
}

}  // namespace magister
