// A record's completions are one group of samples without tokens; a unit reads its records again and verifies them. Millions of short
// texts a second cost less than one pass of a model, so each rank works in one thread.
#include "tasks/score/verify.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/run/chat_prompts.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/record_answers.h"
#include "magister/run/shard_model.h"
#include "tasks/score/columns.h"

namespace magister {
namespace {

using nlohmann::ordered_json;
constexpr std::uint64_t kUnitTexts = 1024;  // what one commit covers

struct Scores {
  std::vector<float> value;
  std::vector<std::int32_t> answer_class;
  std::vector<std::uint32_t> num_tokens;
  std::vector<float> guide_kl, flops;
};

class VerifierJob final : public TaskJob {
 public:
  VerifierJob(const ScoreConfig& config, const TaskInputs& inputs)
      : config_(config), inputs_(inputs), verifier_(config.verifier->rule.options) {
    if (generated()) require_results(inputs_.context, config_.name, "answers", config_.answers, "generate");
  }

  bool inputs_exist() const override { return !generated() || std::filesystem::exists(answers_path()); }
  void open_results() override {
    if (!generated()) return;
    answers_.emplace(answers_path(), config_.dataset, inputs_.dataset);
    answers_->check(inputs_.context.world, inputs_.dataset);
  }
  Attributes identity() override {
    Attributes attributes;
    if (generated()) add_results_digests(inputs_.context, "answers", "", config_.answers, attributes);
    return attributes;
  }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override {
    TaskResults results;
    results.columns =
        verifier_columns(plan.num_samples, plan.key_bytes, verifier_.extracts(), generated(), guided(), has_flops());
    results.default_plot_column = "/score/value";
    return results;
  }
  void work(const ModelRun& run, const PlanNumbers& plan) override;

 private:
  bool generated() const { return !config_.answers.empty(); }
  bool guided() const { return answers_ && answers_->guided(); }
  bool has_flops() const { return answers_ && answers_->has_flops(); }
  std::string answers_path() const { return results_path_of(inputs_.context, config_.answers); }
  // How many completions a record has.
  std::uint64_t group() const { return answers_ ? answers_->texts_a_record() : 1; }
  std::vector<std::string> completions_of(const Record& record) const;
  // classes: of the record's completions so far.
  void add_class(const std::string& completion, std::vector<std::optional<std::string>>& classes, Scores& scores) const;
  void add_scores(const Record& record, Scores& scores) const;
  std::vector<ColumnBytes> columns_of(const Unit& unit) const;

  const ScoreConfig& config_;
  const TaskInputs inputs_;
  const Verifier verifier_;
  std::optional<RecordAnswers> answers_;  // of the generate task, once it has run
};

std::vector<std::string> VerifierJob::completions_of(const Record& record) const {
  // Before the generate task has run, a record is only checked: any text does.
  if (generated()) return answers_ ? answers_->of(record) : std::vector<std::string>{""};
  const std::string& field = config_.verifier->completion_field;
  const ordered_json value = record_field(record.text, field, record.where);
  MAGISTER_CHECK(value.is_string(), ExitCode::kData,
                 "{}: {} is {} (a text is verified); fix this line or name another field", record.where,
                 printable(field), value.type_name());
  return {value.get<std::string>()};
}

SampleRules VerifierJob::rules() {
  SampleRules rules;
  rules.group_samples = group();
  rules.unit_samples = group() * std::max<std::uint64_t>(1, kUnitTexts / group());
  rules.unit_tokens = ~std::uint64_t{0} >> 1;
  rules.may_cut = false;
  rules.encode = [this](const Record& record) {
    right_answers(record, config_.verifier->rule.answer_field);
    return std::vector<SampleTokens>(completions_of(record).size(), SampleTokens(std::vector<TokenId>{}));
  };
  return rules;
}

void VerifierJob::add_class(const std::string& completion, std::vector<std::optional<std::string>>& classes,
                            Scores& scores) const {
  classes.push_back(verifier_.answer_class(completion));
  const auto same = std::find(classes.begin(), classes.end(), classes.back());
  scores.answer_class.push_back(classes.back() ? static_cast<std::int32_t>(same - classes.begin()) : -1);
}

void VerifierJob::add_scores(const Record& record, Scores& scores) const {
  const std::vector<std::string> answers = right_answers(record, config_.verifier->rule.answer_field);
  std::vector<std::optional<std::string>> classes;
  std::uint64_t number = 0;
  for (const std::string& completion : completions_of(record)) {
    scores.value.push_back(static_cast<float>(verified(verifier_, completion, answers)));
    if (verifier_.extracts()) add_class(completion, classes, scores);
    if (generated()) scores.num_tokens.push_back(static_cast<std::uint32_t>(answers_->num_tokens(record, number)));
    if (guided()) scores.guide_kl.push_back(static_cast<float>(answers_->guide_kl(record, number)));
    if (has_flops()) scores.flops.push_back(static_cast<float>(answers_->flops(record, number)));
    ++number;
  }
}

std::vector<ColumnBytes> VerifierJob::columns_of(const Unit& unit) const {
  const std::uint64_t first = inputs_.dataset.records().begin;
  const IndexRange records{first + unit.samples.begin / group(), first + unit.samples.end / group()};
  Scores scores;
  inputs_.dataset.for_each(records, [&](Record&& record) {
    fail_point("score.verify.record");
    add_scores(record, scores);
  });
  MAGISTER_CHECK(scores.value.size() == unit.samples.size(), ExitCode::kData,
                 "{}: unit {} has {} samples, and its records have {} completions now (the data were changed while the "
                 "task ran); run it again with --fresh",
                 config_.name, unit.index, unit.samples.size(), scores.value.size());
  std::vector<ColumnBytes> columns;
  columns.push_back(samples_column("/score/value", scores.value));
  if (verifier_.extracts()) columns.push_back(samples_column("/score/answer_class", scores.answer_class));
  if (generated()) columns.push_back(samples_column("/score/num_tokens", scores.num_tokens));
  if (guided()) columns.push_back(samples_column("/score/guide_kl", scores.guide_kl));
  if (has_flops()) columns.push_back(samples_column("/score/flops", scores.flops));
  return columns;
}

void VerifierJob::work(const ModelRun& run, const PlanNumbers&) {
  run_units_of_one_thread(run, [this](const Unit& unit) { return columns_of(unit); });
}

}  // namespace

std::unique_ptr<TaskJob> make_verifier_job(const ScoreConfig& config, const TaskInputs& inputs) {
  return std::make_unique<VerifierJob>(config, inputs);
}

}  // namespace magister
