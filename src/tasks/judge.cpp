// Task judge: records (and texts of a generate task) -> prompts -> one prefill each -> verdicts and their summary.
// This file is the order of things; prompts, scoring, the loop and the summary have files of their own beside it.
#include <algorithm>
#include <filesystem>

#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/results_texts.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/tasks/judge_config.h"
#include "magister/run/memory_plan.h"
#include "magister/run/model_source.h"
#include "magister/run/run_log.h"
#include "magister/run/task.h"
#include "tasks/judge_combine.h"
#include "magister/run/device_group.h"
#include "tasks/judge_prompts.h"
#include "tasks/judge_report.h"
#include "tasks/judge_run.h"
#include "magister/run/model_hash.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/sample_plan.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;
constexpr std::uint64_t kUnitPrompts = 16;  // what one commit covers

// What a run has opened: equal on every rank.
struct Opened {
  OpenModel model;
  Tokenizer tokenizer;
  Dataset dataset;
};

class Judge final : public Task {
 public:
  explicit Judge(JudgeConfig config) : Task("judge", config.name, config.model), config_(std::move(config)) {}

  PassShape pass_shape() const override { return {config_.token_budget, config_.max_prompt_length + config_.max_new_tokens, 0}; }
  PlanReport plan(RunContext& context, int num_ranks) override;
  ExitCode run(RunContext& context) override;

 private:
  Opened open(const Communicator& world, const std::optional<gpu::Queue>& gpu) const;
  std::string answers_path(const RunContext& context) const;
  std::vector<std::string> panel_paths(const RunContext& context) const;
  SampleRules rules(const ModelConfig& model, const JudgePrompts& prompts, const ResultsTexts* texts) const;
  Attributes identity(const RunContext& context, const Opened& opened, const JudgePrompts& prompts, int tp_size) const;
  ResultsFile create(RunContext& context, const Opened& opened, const JudgePrompts& prompts, const Attributes& identity,
                     PhaseTimes& times) const;
  JudgeShape shape(const SamplePlan& plan, const JudgePrompts& prompts) const {
    return {plan.num_samples, plan.num_tokens, plan.num_units, prompts.classes().size(), plan.max_key_bytes, config_.max_new_tokens};
  }
  std::int64_t cache_pages(const OpenModel& model, int tp_size) const;

  JudgeConfig config_;
};

Opened Judge::open(const Communicator& world, const std::optional<gpu::Queue>& gpu) const {
  return {open_model(world, config_.model, gpu), load_tokenizer(config_.model.path), Dataset::open(world, config_.dataset)};
}

std::string Judge::answers_path(const RunContext& context) const {
  return config_.answers.empty() ? "" : (fs::path(context.results_path).parent_path() / (config_.answers + ".h5")).string();
}

std::vector<std::string> Judge::panel_paths(const RunContext& context) const {
  std::vector<std::string> paths;
  for (const std::string& name : config_.panel) paths.push_back((fs::path(context.results_path).parent_path() / (name + ".h5")).string());
  return paths;
}

std::string verdict_names(const std::vector<VerdictClass>& classes) {
  std::string names;
  for (const VerdictClass& one : classes) names += (names.empty() ? "" : ",") + one.name;
  return names;
}

// The texts of one record, or none where the records hold the answers.
std::vector<std::string> answers_of(const ResultsTexts* texts, const Record& record) {
  std::vector<std::string> answers;
  if (texts == nullptr || texts->num_texts() == 0) return answers;
  const std::uint64_t first = texts->source_index(0), n = texts->texts_a_record();
  const std::uint64_t at = (record.source_index - first) * n;
  MAGISTER_CHECK(record.source_index >= first && at + n <= texts->num_texts() && texts->source_index(at) == record.source_index,
                 ExitCode::kData, "{}: no text was written for this record (the generate task had another data set, limit or "
                 "slice); give both tasks the same", record.where);
  for (std::uint64_t i = 0; i < n; ++i) answers.push_back(texts->text(at + i));
  return answers;
}

SampleRules Judge::rules(const ModelConfig& model, const JudgePrompts& prompts, const ResultsTexts* texts) const {
  const std::uint64_t longest = config_.max_prompt_length + config_.max_new_tokens;
  MAGISTER_CHECK(model.max_position_embeddings <= 0 || longest <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig, "{} is {} and max_new_tokens {}, but the model was made for {} positions "
                 "(verdicts beyond them would be meaningless); lower them", config_.length_place, config_.max_prompt_length, config_.max_new_tokens,
                 model.max_position_embeddings);
  SampleRules rules;
  rules.max_length = config_.max_prompt_length;
  rules.overflow = Overflow::kError;
  rules.length_key = "max_prompt_length";
  rules.may_cut = false;
  rules.group_samples = prompts.group();
  rules.vocab_size = model.vocab_size;
  // All prompts about one text are in one unit, where their verdicts are combined.
  rules.unit_samples = prompts.group() * std::max<std::uint64_t>(1, kUnitPrompts / prompts.group());
  rules.unit_tokens = rules.unit_samples * config_.max_prompt_length;
  rules.min_length = 1;
  rules.encode = [&prompts, texts](const Record& record) {
    std::vector<std::vector<TokenId>> all = prompts.encode(record, answers_of(texts, record));
    return std::vector<SampleTokens>(std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
  };
  return rules;
}

Attributes Judge::identity(const RunContext& context, const Opened& opened, const JudgePrompts& prompts, int tp_size) const {
  const IndexRange slice = opened.dataset.records();
  Attributes attributes = {{"config_sha256", sha256_hex(context.config_yaml)},
                           {"model_sha256", model_sha256(context.world, config_.model.path, *opened.model.file)},
                           {"tokenizer_sha256", opened.tokenizer.sha256()},
                           {"dataset_sha256", opened.dataset.sha256()},
                           {"prompt_sha256", prompts.sha256()},
                           {"verdicts", verdict_names(prompts.classes())},
                           {"samples_a_text", prompts.group()},
                           {"dtype", dtype_name(opened.model.dtype)}, {"device", opened.model.device_kind()},
                           {"tp_size", static_cast<std::uint64_t>(tp_size)},
                           {"source_records", opened.dataset.num_source_records()},
                           {"slice_begin", slice.begin},
                           {"slice_end", slice.end}};
  if (const std::string path = answers_path(context); !path.empty()) {
    std::string hash = context.world.rank() == 0 ? file_sha256(path) : "";
    context.world.broadcast(hash, 0);
    attributes.emplace_back("answers_sha256", hash);
  }
  for (const std::string& path : panel_paths(context)) {
    std::string hash = context.world.rank() == 0 ? file_sha256(path) : "";
    context.world.broadcast(hash, 0);
    attributes.emplace_back(fmt::format("panel_sha256_{}", fs::path(path).stem().string()), hash);
  }
  return attributes;
}

ResultsFile Judge::create(RunContext& context, const Opened& opened, const JudgePrompts& prompts, const Attributes& identity,
                          PhaseTimes& times) const {
  const std::string folder = fs::path(context.results_path).parent_path().string(), answers = answers_path(context);
  std::optional<ResultsTexts> texts;
  if (!answers.empty()) texts.emplace(answers);
  const auto tokenized = [&] {
    const PhaseTimes::Span span(times, "tokenise");
    return SamplePlan::make(context.world, opened.dataset, opened.tokenizer,
                            rules(opened.model.description.config, prompts, texts ? &*texts : nullptr), folder);
  };
  SamplePlan plan = tokenized();
  const PhaseTimes::Span span(times, "create the file");
  const JudgeShape size = shape(plan, prompts);
  check_free_space(context.world, folder, size.file_bytes());
  ResultsSpec spec;
  spec.columns = judge_columns(size);
  spec.num_units = plan.num_units;
  spec.default_plot_column = "/judge/log_odds";
  spec.attributes = {{"format", "magister.judge"}, {"format_version", std::uint64_t{1}}, {"software", "magister"},
                     {"software_version", MAGISTER_VERSION}, {"experiment", context.experiment_yaml}};
  spec.attributes.insert(spec.attributes.end(), identity.begin(), identity.end());
  spec.attributes.emplace_back("plan_sha256", sha256_hex(fmt::format("prompts {} tokens {} units {} lengths {:016x}", plan.num_samples,
                                                                     plan.num_tokens, plan.num_units, plan.lengths_digest)));
  spec.attributes.emplace_back("num_samples", plan.num_samples);
  spec.attributes.emplace_back("num_tokens", plan.num_tokens);
  ResultsFile file = ResultsFile::create(context.world, context.results_path, spec);
  plan.write_fixed_columns(file);
  file.freeze();
  context.log.event("plan", {{"task", name()}, {"prompts", plan.num_samples}, {"prompt_tokens", plan.num_tokens}});
  return file;
}

// Pages for two passes' prompts and the replies under way, or what the cache's budget holds; one prompt always fits.
std::int64_t Judge::cache_pages(const OpenModel& model, int tp_size) const {
  const std::uint64_t affordable = model.cache_budget_bytes(tp_size, pass_shape()) / model.page_bytes(tp_size);
  const std::uint64_t a_prompt = (config_.max_prompt_length + config_.max_new_tokens) / KvPages::kSlots + 2;
  const std::uint64_t replying = config_.max_new_tokens == 0 ? 0 : config_.max_sequences * a_prompt;
  const std::uint64_t wished = a_prompt + replying + 2 * (config_.token_budget / KvPages::kSlots + config_.max_sequences);
  return static_cast<std::int64_t>(std::max(a_prompt + 1, std::min(wished, affordable)));
}

ExitCode Judge::run(RunContext& context) {
  PhaseTimes times;
  const GpuGroup group = resolve_group(context, config_.model, pass_shape());
  make_folder(context.world, fs::path(context.results_path).parent_path().string());
  const ResultsLock lock(context.world, context.results_path);
  if (context.fresh) put_aside(context.world, context.results_path);
  const Opened opened = open(context.world, queue_of(group));
  const ModelConfig& model = opened.model.description.config;
  partition_for(model, group.first_tp_rank(), group.tp_size());  // refuses what cannot be divided
  const JudgePrompts prompts(config_, opened.tokenizer);
  const std::vector<VerdictClass> classes = prompts.classes();
  const VerdictTokens tokens = verdict_tokens(opened.tokenizer, classes);
  rules(model, prompts, nullptr);
  const Attributes expected = identity(context, opened, prompts, group.tp_size());
  const ResultsFile::State state = state_everywhere(context.world, context.results_path);
  if (state == ResultsFile::State::kComplete) {
    check_complete(context.world, context.results_path, expected);
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", name(), context.results_path);
    return ExitCode::kDone;
  }
  for (const std::string& path : panel_paths(context)) {  // before a file is made that could never be finished
    MAGISTER_CHECK(fs::exists(path), ExitCode::kInputOutput, "tasks: {}: panel: {} does not exist (its verdicts are to be combined with this "
                   "judge's); run that judge first, as an earlier task of the experiment or on its own", name(), printable(path));
  }
  ResultsFile file = state == ResultsFile::State::kPartial ? ResultsFile::resume(context.world, context.results_path, expected)
                                                           : create(context, opened, prompts, expected, times);
  const std::uint64_t num_samples = ResultsFile::read_number(context.world, context.results_path + ".partial", "num_samples");
  const auto num_pages = static_cast<std::int64_t>(context.world.min(static_cast<std::uint64_t>(cache_pages(opened.model, group.tp_size()))));
  std::vector<TokenId> ends = end_tokens(config_.model.path, model);
  std::sort(ends.begin(), ends.end());
  std::optional<JudgePanel> panel;
  if (!config_.panel.empty()) panel.emplace(panel_paths(context), verdict_names(classes), num_samples / prompts.group());
  LossQuestion question{name(), config_.model.quantization_loss, opened.model, file, expected};
  if (config_.max_new_tokens == 0) {  // else the verdict comes after a reply, not after the prompt
    question.score = [&](std::span<const float> logits_V) {
      const Verdict verdict = verdict_from(class_logprobs(logits_V, tokens), config_.low_mass);
      return RowDecision{verdict.verdict, verdict.log_odds};
    };
  }
  const std::optional<LossPlan> loss = plan_quantization_loss(context, group, std::move(question));
  UnitLoop loop{context, group, file, name(), context.results_path, times, opened.model.facts(), false};
  const ExitCode code = run_unit_loop(std::move(loop), [&](const UnitWork& work) {
    run_judge_units({{group, file, work, opened.model, [&] { return context.stop.raised(); }, loss, times, pass_shape(), num_pages}, config_, prompts.orders(),
                     prompts.group(), classes, tokens, opened.tokenizer, ends, panel ? &*panel : nullptr, num_pages});
  });
  if (code != ExitCode::kDone) return code;
  // The summary first: a complete file whose summary failed would never get one.
  if (context.world.rank() == 0) {
    write_judge_summary({config_, prompts, opened.dataset, file, num_samples, answers_path(context), context.results_path, context.log});
  }
  context.world.wait_for_all();
  file.complete(context.world);
  log_info("{}: {} is complete", name(), context.results_path);
  return ExitCode::kDone;
}

PlanReport Judge::plan(RunContext& context, int num_ranks) {
  const LayoutConfig layout = sized_layout(context, config_.model, pass_shape(), num_ranks);
  const Opened opened = open(context.world, queue_of(plan_layout(num_ranks, layout)));
  const ModelConfig& model = opened.model.description.config;
  const JudgePrompts prompts(config_, opened.tokenizer);
  verdict_tokens(opened.tokenizer, prompts.classes());
  PlanReport report;
  plan_devices(report, num_ranks, layout, {model, opened.model.dtype, opened.model.quantization, opened.model.layers()});
  const auto pages = static_cast<std::uint64_t>(cache_pages(opened.model, report.tp_size));
  report.device_parts = opened.model.device_memory(report.tp_size, pass_shape(), pages);
  report.device_bytes = sum_of(report.device_parts);
  check_device_memory(report);
  report.free_bytes = free_bytes_for(context.results_path);
  const std::string answers = answers_path(context);
  if (!answers.empty() && !fs::exists(answers)) {
    report.num_samples = opened.dataset.records().size() * prompts.group();
    report.notes = {{"answers", fmt::format("{} is not written yet: lengths are unknown", answers)}};
    return report;
  }
  std::optional<ResultsTexts> texts;
  if (!answers.empty()) texts.emplace(answers);
  const SamplePlan samples = SamplePlan::make(context.world, opened.dataset, opened.tokenizer,
                                              rules(model, prompts, texts ? &*texts : nullptr), fs::temp_directory_path().string());
  report.num_samples = samples.num_samples;
  report.num_units = samples.num_units;
  report.num_tokens = samples.num_tokens;
  report.results_bytes = shape(samples, prompts).file_bytes();
  report.notes = {{"longest prompt", fmt::format("{} tokens", samples.longest_sample)}};
  return report;
}

}  // namespace

std::unique_ptr<Task> make_judge(JudgeConfig config) { return std::make_unique<Judge>(std::move(config)); }

}  // namespace magister
