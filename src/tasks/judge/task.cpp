// Task judge: records (and completions of a generate task) -> prompts -> one prefill or reply each -> verdicts and
// their summary -> one packed file. Prompts, scoring, the worker and the summary have their own files in this folder.
#include "magister/run/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/end_tokens.h"
#include "magister/runtime/open_model.h"
#include "magister/tasks/generate/record_answers.h"
#include "magister/tasks/judge/prompts.h"
#include "tasks/judge/columns.h"
#include "tasks/judge/config.h"
#include "tasks/judge/labels.h"
#include "tasks/judge/pack.h"
#include "tasks/judge/report.h"
#include "tasks/judge/summarize.h"
#include "tasks/judge/worker.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kUnitPrompts = 16;  // prompts per unit; each unit is one commit

std::string verdict_names(const std::vector<VerdictClass>& classes) {
  std::string names;
  for (const VerdictClass& one : classes) names += (names.empty() ? "" : ",") + one.name;
  return names;
}

class JudgeJob final : public TaskJob {
 public:
  JudgeJob(const JudgeConfig& config, const TaskInputs& inputs);

  Awaited awaited() const override;
  void open_results() override;
  Attributes identity() override;
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  MemoryDemand demand(const PlanNumbers&) const override { return {.cache_pages = cache_pages()}; }
  std::function<RowDecision(std::span<const float>)> decision() const override;
  void work(const ModelRun& run) override;
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    return make_judge_worker(std::move(shard), setup_);
  }
  bool report(const ResultsFile& file, const PlanNumbers& plan) override;
  Packing packing() override {
    return [this](const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                  const Attributes& root) { return pack(running, shape(plan), path, root); };
  }
  SideFiles side_files() const override;

 private:
  ExpectedText expected_text() const;
  std::uint64_t cache_pages() const;
  bool pack(const ResultsFile& running, const JudgeShape& size, const std::string& path, const Attributes& root) const;
  std::string answers_path() const {
    if (config_.answers.empty()) return "";
    return results_path_of(inputs_.context, config_.answers, "generate", config_.answers_place);
  }
  std::vector<std::string> panel_paths() const;
  JudgeShape shape(const PlanNumbers& plan) const {
    return {.num_samples = plan.num_samples,
            .num_tokens = plan.num_tokens,
            .classes = setup_.classes.size(),
            .key_bytes = plan.key_bytes,
            .reply_tokens = config_.max_new_tokens.tokens()};
  }

  JudgeSetup setup_;
  const JudgeConfig& config_;  // the one of setup_
  const PassShape pass_;
  const TaskInputs inputs_;
  std::optional<RecordAnswers> answers_;  // of the generate task, once it has run
};

JudgeJob::JudgeJob(const JudgeConfig& config, const TaskInputs& inputs)
    : setup_(without_auto(config, inputs.model.pass_limits()), inputs.checkpoint),
      config_(setup_.config),
      pass_(text_pass(config_, config_.limits({}))),
      inputs_(inputs) {
  check_positions(inputs.checkpoint.config(), config_.length_place, config_.max_prompt_length.tokens(),
                  config_.max_new_tokens.tokens());
  if (config_.max_new_tokens.tokens() > 0 && config_.use_chat_template)
    warn_of_unended_turn(inputs.checkpoint, config_.name, setup_.ends);
  const Task* const writer = config_.answers.empty()
                                 ? nullptr
                                 : require_results(inputs.context, config_.answers_place, config_.answers, "generate");
  for (const std::string& name : config_.panel) {
    const Task* const judge = require_results(inputs.context, config_.panel_place, name, "judge");
    if (judge == nullptr) continue;
    const std::string verdicts = announced_text(*judge, "verdicts");
    MAGISTER_CHECK(verdicts == verdict_names(setup_.classes), ExitCode::kConfig,
                   "{} names {}, whose verdicts are {}, and this task's are {} (they cannot be combined); give both "
                   "tasks one mode",
                   config_.panel_place, printable(name), verdicts, verdict_names(setup_.classes));
    if (inputs.data_is_placeholder) continue;
    const std::optional<IndexRange> other = other_records_of(inputs.context, *judge, config_.dataset);
    const IndexRange own = inputs.dataset.records();
    MAGISTER_CHECK(!other || *other == own, ExitCode::kConfig,
                   "{} names {}, which judges records {} to {}, and this task those from {} to {} (verdicts on other "
                   "texts would be counted together); give both tasks the same data, limit and slice",
                   config_.panel_place, printable(name), other->begin, other->end, own.begin, own.end);
  }
  if (inputs.data_is_placeholder) return;
  if (writer != nullptr)
    check_answered_records(inputs.context, config_.answers_place, *writer, config_.dataset, inputs.dataset);
  setup_.prompts.check_fields(inputs.dataset, !config_.answers.empty());
  JudgeLabels(config_, setup_.classes).check(inputs.context.world, inputs.dataset);
}

std::vector<std::string> JudgeJob::panel_paths() const {
  std::vector<std::string> paths;
  paths.reserve(config_.panel.size());
  for (const std::string& name : config_.panel)
    paths.push_back(results_path_of(inputs_.context, name, "judge", config_.panel_place));
  return paths;
}

Awaited JudgeJob::awaited() const {
  const std::vector<std::string> paths = panel_paths();
  return {.results =
              (!config_.answers.empty() && !fs::exists(answers_path())) ||
              std::any_of(paths.begin(), paths.end(), [](const std::string& path) { return !fs::exists(path); })};
}

void JudgeJob::open_results() {
  if (config_.answers.empty()) return;
  answers_.emplace(answers_path(), config_.dataset, inputs_.dataset);
  answers_->check(inputs_.context.world, inputs_.dataset);
}

Attributes JudgeJob::identity() {
  Attributes attributes = {{"prompt_sha256", setup_.prompts.sha256()},
                           {"verdicts", verdict_names(setup_.classes)},
                           {"samples_a_text", setup_.prompts.group()}};
  if (const std::string ids = setup_.tokens.identity(); !ids.empty()) attributes.emplace_back("verdict_token_ids", ids);
  if (!config_.answers.empty()) add_results_digests(inputs_.context, "answers", "", answers_path(), attributes);
  Attributes texts = attributes;
  const IndexRange slice = inputs_.dataset.records();
  texts.insert(texts.end(),
               {{"dataset_sha256", inputs_.dataset.sha256()}, {"slice_begin", slice.begin}, {"slice_end", slice.end}});
  const std::vector<std::string> paths = panel_paths();
  std::map<std::string, int> named;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    check_panel_judge(paths[i], verdict_names(setup_.classes), texts);
    const std::string name = results_name(config_.panel[i]);
    const int number = ++named[name];  // judges of several runs may have the same name
    add_results_digests(inputs_.context, "panel", number == 1 ? "_" + name : fmt::format("_{}-{}", name, number),
                        paths[i], attributes);
  }
  return attributes;
}

// The texts of a generate task, or what the data set's fields hold.
ExpectedText JudgeJob::expected_text() const {
  if (answers_)
    return {fmt::format("the text of {}", printable(answers_path(), 4096)), "the task that wrote it",
            [this](const Record& record) { return setup_.prompts.is_empty(record, answers_->of(record)); }};
  if (!config_.answers.empty()) return {};
  std::vector<std::string> fields = setup_.prompts.judged_fields();
  for (std::string& name : fields) {
    if (const auto other = config_.fields.find(name); other != config_.fields.end()) name = other->second;
  }
  return expect_field(config_.dataset, fmt::format("{}", fmt::join(fields, ", ")), "fields",
                      [this](const Record& record) { return setup_.prompts.is_empty(record, {}); });
}

SampleRules JudgeJob::rules() {
  SampleRules rules = prompt_rules(config_, inputs_.checkpoint.config().vocab_size, &setup_.tokenizer);
  rules.group_samples = setup_.prompts.group();
  // All prompts about one text are in one unit, which combines their verdicts.
  rules.unit_samples = setup_.prompts.group() * std::max<std::uint64_t>(1, kUnitPrompts / setup_.prompts.group());
  rules.unit_tokens = rules.unit_samples * config_.max_prompt_length.tokens();
  rules.least_units = 64;  // a pass holds many units, so small units cost only their commits
  rules.expected_text = expected_text();
  rules.encode = [this](const Record& record) {
    std::vector<std::string> answers;
    // Before the generate task has run, a record is only checked, and any answer is good enough.
    if (!config_.answers.empty()) answers = answers_ ? answers_->of(record) : std::vector<std::string>{"an answer"};
    std::vector<std::vector<TokenId>> all = setup_.prompts.encode(record, answers);
    return std::vector<SampleTokens>(std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
  };
  return rules;
}

TaskResults JudgeJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = judge_columns(shape(plan));
  results.packed_bytes = packed_judge_bytes(shape(plan), plan.num_units);
  results.default_plot_column = judge_column::kLogOdds.path;
  if (config_.max_new_tokens.tokens() > 0) results.made_smaller_by = "max_new_tokens";
  return results;
}

// Pages for the prompts of two passes and the replies in flight, limited by the cache's budget; one prompt always fits.
std::uint64_t JudgeJob::cache_pages() const {
  const std::uint64_t affordable =
      inputs_.model.cache_budget_bytes(inputs_.tp_size, pass_) / inputs_.model.page_bytes(inputs_.tp_size);
  const std::uint64_t a_prompt = config_.longest_text() / KvPages::kSlots + 2;
  const std::uint64_t replying = config_.max_new_tokens.tokens() == 0 ? 0 : config_.max_sequences * a_prompt;
  const std::uint64_t requested =
      a_prompt + replying + 2 * (config_.token_budget / KvPages::kSlots + config_.max_sequences);
  return std::max(a_prompt + 1, std::min(requested, affordable));
}

std::function<RowDecision(std::span<const float>)> JudgeJob::decision() const {
  if (config_.max_new_tokens.tokens() > 0) return {};  // the verdict comes after a reply, not after the prompt
  return [this](std::span<const float> logits_V) {
    const Verdict verdict = verdict_from(class_logprobs_of_row(logits_V, setup_.tokens), config_.low_mass);
    return RowDecision{verdict.verdict, verdict.log_odds};
  };
}

void JudgeJob::work(const ModelRun& run) {
  if (!config_.panel.empty())
    setup_.panel.emplace(panel_paths(), verdict_names(setup_.classes), run.plan.num_samples / setup_.prompts.group());
  TaskJob::work(run);
}

// Writes the summary before the file is complete: a complete file whose summary failed would never get one.
bool JudgeJob::report(const ResultsFile& file, const PlanNumbers& plan) {
  const auto read = [&file](const char* path, std::uint64_t first_row, std::span<std::byte> data) {
    file.read(path, first_row, data);
  };
  return write_judge_summary({.config = config_,
                              .prompts = setup_.prompts,
                              .dataset = inputs_.dataset,
                              .read = read,
                              .num_samples = plan.num_samples,
                              .answers = answers_ ? &*answers_ : nullptr,
                              .results_path = inputs_.context.results_path,
                              .log = inputs_.context.log,
                              .poll = inputs_.context.stop_poll()});
}

bool JudgeJob::pack(const ResultsFile& running, const JudgeShape& size, const std::string& path,
                    const Attributes& root) const {
  return pack_verdicts({.running = running,
                        .shape = size,
                        .prompts = setup_.prompts,
                        .dataset = inputs_.dataset,
                        .answers = answers_ ? &*answers_ : nullptr,
                        .tokenizer = setup_.tokenizer,
                        .poll = inputs_.context.stop_poll()},
                       path, root);
}

SideFiles JudgeJob::side_files() const {
  SideFiles side_files;
  for (const char* const extension : {".summary.json", ".summary.csv"})
    side_files.needed.push_back({fs::path(inputs_.context.results_path).replace_extension(extension).string(),
                                 "the summary of all verdicts",
                                 "put it back, or make it again with `magister summarize`"});
  return side_files;
}

std::vector<std::string> needs_of(const JudgeConfig& config) {
  std::vector<std::string> needs = config.panel;
  needs.push_back(config.answers);
  return needs;
}

class Judge final : public Task {
 public:
  explicit Judge(JudgeConfig config)
      : Task("judge", config.name, config.model, config.dataset,
             {.keeps_widths = true,
              .needs = needs_of(config),
              .announced = {{"verdicts", verdict_names(verdict_classes(config))}}}),
        config_(std::move(config)) {}

  std::uint64_t cached_tokens() const override { return config_.longest_text(); }
  Notes fit_lengths(const Positions& own, const PositionsOf&) override {
    Notes notes;
    magister::fit_lengths(config_.max_prompt_length, config_.max_new_tokens, own.cached, notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits& device) const override { return text_pass(config_, config_.limits(device)); }
  ModelWork model_work(double samples, double tokens) const override {
    return {tokens, samples * static_cast<double>(config_.max_new_tokens.tokens()), 0,
            std::min(samples, static_cast<double>(config_.limits({}).sequences))};
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<JudgeJob>(config_, inputs);
  }
  void summarize(const RunContext& context) const override { summarize_judge(context, config_); }

 private:
  JudgeConfig config_;
};

}  // namespace

TaskKind judge_task() {
  return {.name = "judge", .read = read_as<Judge, read_judge_config>, .schema = &kJudgeSchema, .has_summary = true};
}

}  // namespace magister
