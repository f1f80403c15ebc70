// Task evaluate: compares how often methods are right on the same records, from their scores: accuracy, pass@k,
// majority@k, tokens. A unit is a range of records; rank 0 sums the shares of all into <name>.json and <name>.csv. No
// model is loaded.
#include "magister/run/task.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/results/reader.h"
#include "magister/io/whole_file.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/run_log.h"
#include "magister/run/shard_model.h"
#include "magister/run/summary_csv.h"
#include "magister/tasks/score/scores_file.h"
#include "tasks/evaluate/columns.h"
#include "tasks/evaluate/config.h"
#include "tasks/evaluate/summary.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Figures {
  std::vector<std::uint8_t> correct;
  std::vector<float> pass, majority, num_tokens, guide_kl, flops;
  std::vector<std::uint32_t> unread;
};

class EvaluateJob final : public TaskJob {
 public:
  EvaluateJob(const EvaluateConfig& config, const TaskInputs& inputs);

  Awaited awaited() const override {
    return {.results = std::any_of(config_.named.begin(), config_.named.end(),
                                   [this](const std::string& named) { return !fs::exists(path_of(named)); })};
  }
  void open_results() override;
  Attributes identity() override;
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override {
    TaskResults results;
    results.columns = evaluate_columns(plan.num_samples, plan.key_bytes, config_.scores.size(), config_.pass_at.size(),
                                       config_.majority_at.size(), reports_unread());
    results.default_plot_column = evaluate_column::kPassAt.path;
    return results;
  }
  void work(const ModelRun& run) override {
    run_units_of_one_thread(run,
                            [this](const Unit& unit) { return columns_of({unit.samples.begin, unit.samples.end}); });
  }
  bool report(const ResultsFile& file, const PlanNumbers& plan) override;
  SideFiles side_files() const override {
    return {.needed = {{side_file_path(".json"), kHolds}, {side_file_path(".csv"), kHolds}},
            .check = [this] { check_complete(); }};
  }

 private:
  static constexpr const char* kHolds = "the summary of all records";
  std::string side_file_path(const char* extension) const {
    return fs::path(inputs_.context.results_path).replace_extension(extension).string();
  }
  std::string path_of(const std::string& named) const {
    return results_path_of(inputs_.context, named, "score", config_.scores_place);
  }
  bool reports_unread() const {
    return std::any_of(methods_.begin(), methods_.end(), [](const ScoresFile& one) { return one.reports_unread(); });
  }
  void check_method(const std::string& name, const Task::RecordTexts& method) const;
  void add_figures(const RecordScores& record, Figures& figures) const;
  std::vector<ColumnBytes> columns_of(IndexRange records) const;
  std::optional<ordered_json> summary(std::uint64_t num_records, const ReadRows& read) const {
    return evaluation_summary(config_, methods_, num_records, read, inputs_.context.stop);
  }
  void check_complete() const;
  void check_side_file(const char* extension, const std::string& text) const;

  const EvaluateConfig& config_;
  const TaskInputs inputs_;
  std::vector<ScoresFile> methods_;  // set once the score tasks have run
};

// Refuses methods before any of them has run, as far as the config allows.
EvaluateJob::EvaluateJob(const EvaluateConfig& config, const TaskInputs& inputs) : config_(config), inputs_(inputs) {
  std::optional<DatasetConfig> records;  // of the first method; they are the evaluation's
  for (const std::string& name : config_.named) {
    const Task* const scorer = require_results(inputs.context, config_.scores_place, name, "score");
    if (scorer == nullptr) continue;
    check_method(name, scorer->record_texts(inputs.context));
    if (!records) records = scorer->data(inputs.context).config;
    const std::optional<IndexRange> other = other_records_of(inputs.context, *scorer, *records);
    const IndexRange own = inputs.dataset.records();
    MAGISTER_CHECK(
        !other || *other == own, ExitCode::kConfig,
        "{} names {}, which scores records {} to {}, and {} those from {} to {} (methods are compared on the "
        "same questions); give the tasks the same data, limit and slice",
        config_.scores_place, printable(name), other->begin, other->end, printable(config_.scores.front()), own.begin,
        own.end);
  }
}

void EvaluateJob::open_results() {
  methods_.clear();
  for (std::size_t i = 0; i < config_.scores.size(); ++i) {
    methods_.emplace_back(path_of(config_.named[i]), inputs_.dataset);
    const ScoresFile& method = methods_.back();
    check_method(config_.scores[i], {method.texts_a_record(), method.of_model(), method.has_classes()});
    methods_.back().check(inputs_.context.world);
  }
}

void EvaluateJob::check_method(const std::string& name, const Task::RecordTexts& method) const {
  const auto check = [&](const std::vector<std::uint64_t>& counts, const std::string& place) {
    for (const std::uint64_t k : counts) {
      MAGISTER_CHECK(
          method.texts == 0 || k <= method.texts, ExitCode::kConfig,
          "{} asks for {}, and {} has {} text{} a record (k of them cannot be chosen); ask for less, or write "
          "more texts (generate.n)",
          place, k, printable(name), method.texts, method.texts == 1 ? "" : "s");
    }
  };
  check(config_.pass_at, config_.pass_place);
  check(config_.majority_at, config_.majority_place);
  MAGISTER_CHECK(
      !method.of_model || config_.has_threshold, ExitCode::kConfig,
      "{} is not given, and {} is scored by a model (0.5 of its numbers means nothing in particular); say from which "
      "number on a text is right",
      config_.threshold_place, printable(name));
  MAGISTER_CHECK(
      config_.majority_at.empty() || method.has_classes, ExitCode::kConfig,
      "{} is given, and {} is scored by a {} (which texts give the same answer is not known); {}, or remove it",
      config_.majority_place, printable(name), method.of_model ? "model" : "pattern without a group",
      method.of_model ? "score with a verifier" : "put the part of score.pattern that is the answer into (...)");
}

Attributes EvaluateJob::identity() {
  Attributes attributes = {{"methods", ordered_json(config_.scores).dump()},
                           {"pass_at", ordered_json(config_.pass_at).dump()},
                           {"majority_at", ordered_json(config_.majority_at).dump()}};
  for (std::size_t i = 0; i < config_.scores.size(); ++i)
    add_results_digests(inputs_.context, "scores", "_" + config_.scores[i], path_of(config_.named[i]), attributes);
  return attributes;
}

SampleRules EvaluateJob::rules() {
  SampleRules rules;
  rules.unit_samples = kEvaluatedUnit;
  rules.unit_tokens = ~std::uint64_t{0} >> 1;
  rules.may_cut = false;
  rules.encode = [](const Record&) { return std::vector<SampleTokens>(1, SampleTokens(std::vector<TokenId>{})); };
  return rules;
}

void EvaluateJob::add_figures(const RecordScores& record, Figures& figures) const {
  const auto is_right = [this](float value) { return static_cast<double>(value) >= config_.threshold; };
  const std::uint64_t n = record.value.size();
  const auto right = static_cast<std::uint64_t>(std::count_if(record.value.begin(), record.value.end(), is_right));
  figures.correct.push_back(is_right(record.value[0]) ? 1 : 0);
  for (const std::uint64_t k : config_.pass_at) figures.pass.push_back(static_cast<float>(pass_at(n, right, k)));
  figures.num_tokens.push_back(static_cast<float>(record.mean_tokens));
  figures.guide_kl.push_back(static_cast<float>(record.mean_guide_kl));
  figures.flops.push_back(static_cast<float>(record.mean_flops));
  figures.unread.insert(figures.unread.end(), record.unread.begin(), record.unread.end());
  if (config_.majority_at.empty()) return;
  // A class has the number of its first text, whose score decides if its answer is right.
  std::vector<AnswerClass> by_first(n);
  std::uint64_t silent = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (record.answer_class[i] < 0) {
      ++silent;
    } else {
      ++by_first[static_cast<std::size_t>(record.answer_class[i])].size;
    }
    by_first[i].right = is_right(record.value[i]);
  }
  std::erase_if(by_first, [](const AnswerClass& one) { return one.size == 0; });
  std::transform(config_.majority_at.begin(), config_.majority_at.end(), std::back_inserter(figures.majority),
                 [&](std::uint64_t k) { return static_cast<float>(majority_at(by_first, silent, k, config_.ties)); });
}

std::vector<ColumnBytes> EvaluateJob::columns_of(IndexRange records) const {
  std::vector<std::vector<RecordScores>> by_method;
  by_method.reserve(methods_.size());
  for (const ScoresFile& method : methods_) by_method.push_back(method.read(records));
  Figures figures;
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    fail_point("evaluate.record");
    for (const std::vector<RecordScores>& method : by_method) add_figures(method[i], figures);
  }
  std::vector<ColumnBytes> columns;
  columns.push_back(samples_column(evaluate_column::kCorrect, figures.correct));
  columns.push_back(samples_column(evaluate_column::kPassAt, figures.pass));
  if (!config_.majority_at.empty()) columns.push_back(samples_column(evaluate_column::kMajorityAt, figures.majority));
  columns.push_back(samples_column(evaluate_column::kNumTokens, figures.num_tokens));
  columns.push_back(samples_column(evaluate_column::kGuideKl, figures.guide_kl));
  columns.push_back(samples_column(evaluate_column::kFlops, figures.flops));
  if (reports_unread()) columns.push_back(samples_column(evaluate_column::kUnread, figures.unread));
  return columns;
}

bool EvaluateJob::report(const ResultsFile& file, const PlanNumbers& plan) {
  const std::optional<ordered_json> found = summary(
      plan.num_samples,
      [&](const char* column, std::uint64_t first, std::span<std::byte> rows) { file.read(column, first, rows); });
  if (!found) return false;
  fail_point("evaluate.report");
  write_whole_file(side_file_path(".json"), found->dump(2) + "\n");
  write_whole_file(side_file_path(".csv"), summary_csv(*found));
  inputs_.context.log.event("evaluation", *found);
  log_info("{}: {}", config_.name, found->dump());
  return true;
}

void EvaluateJob::check_side_file(const char* extension, const std::string& text) const {
  MAGISTER_CHECK(read_whole_file(side_file_path(extension), 1 << 30, "it sums up the results") == text, ExitCode::kData,
                 "{}: is not the summary of {} (it is damaged or was changed); put it back, or start over with --fresh",
                 printable(side_file_path(extension), 4096), printable(inputs_.context.results_path, 4096));
}

void EvaluateJob::check_complete() const {
  const ResultsReader file(inputs_.context.results_path);
  const std::optional<ordered_json> found = summary(
      file.num_samples(),
      [&](const char* column, std::uint64_t first, std::span<std::byte> rows) { file.read(column, first, rows); });
  if (!found) return;
  check_side_file(".json", found->dump(2) + "\n");
  check_side_file(".csv", summary_csv(*found));
}

ModelSection no_model() {
  ModelSection section;
  section.none = true;
  return section;
}

class Evaluate final : public Task {
 public:
  explicit Evaluate(EvaluateConfig config)
      : Task("evaluate", config.name, no_model(), DatasetConfig{}, {.needs = config.named}),
        config_(std::move(config)) {}

  // The records of the first score task.
  TaskData data(const RunContext& context) const override {
    const std::string& first = config_.named.front();
    const Task* const maker = require_results(context, config_.scores_place, first, "score");
    MAGISTER_CHECK(
        maker != nullptr, ExitCode::kConfig,
        "{} names {}, whose results are there and which is no task of this experiment (its "
        "records are needed); put that task before this one: complete results are taken as they are, or name "
        "one of this experiment's first",
        config_.scores_place, printable(first));
    const TaskData data = maker->data(context);
    return {data.config,
            data.is_placeholder || !is_made(context, results_path_of(context, first, "score", config_.scores_place))};
  }
  PassShape pass_shape(const PassLimits&) const override { return {}; }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<EvaluateJob>(config_, inputs);
  }

 private:
  EvaluateConfig config_;
};

}  // namespace

TaskKind evaluate_task() {
  return {.name = "evaluate", .read = read_as<Evaluate, read_evaluate_config>, .schema = &kEvaluateSchema};
}

}  // namespace magister
