// Task judge: records (and texts of a generate task) -> prompts -> one prefill each -> verdicts and their summary.
// This file is the order of things; prompts, scoring, the loop and the summary have files of their own beside it.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/results_texts.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/tasks/judge_config.h"
#include "magister/tasks/model_source.h"
#include "magister/tasks/run_log.h"
#include "magister/tasks/task.h"
#include "tasks/judge_prompts.h"
#include "tasks/judge_run.h"
#include "tasks/judge_summary.h"
#include "tasks/model_hash.h"
#include "tasks/open_model.h"
#include "tasks/results_on_disk.h"
#include "tasks/sample_plan.h"

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
  explicit Judge(JudgeConfig config) : Task("judge", config.name), config_(std::move(config)) {}

  PlanReport plan(RunContext& context, int num_ranks) override;
  ExitCode run(RunContext& context) override;

 private:
  Opened open(const Communicator& world) const;
  std::string answers_path(const RunContext& context) const;
  SampleRules rules(const ModelConfig& model, const JudgePrompts& prompts, const ResultsTexts* texts) const;
  Attributes identity(const RunContext& context, const Opened& opened, const JudgePrompts& prompts, int tp_size) const;
  ResultsFile create(RunContext& context, const Opened& opened, const JudgePrompts& prompts, const Attributes& identity,
                     PhaseTimes& times) const;
  std::int64_t cache_pages(const ModelConfig& model, int tp_size) const;
  void write_summary(RunContext& context, const Opened& opened, const JudgePrompts& prompts, const ResultsFile& file,
                     std::uint64_t num_samples) const;

  JudgeConfig config_;
};

Opened Judge::open(const Communicator& world) const {
  return {open_model(world, config_.model), load_tokenizer(config_.model.path), Dataset::open(world, config_.dataset)};
}

std::string Judge::answers_path(const RunContext& context) const {
  return config_.answers.empty() ? "" : (fs::path(context.results_path).parent_path() / (config_.answers + ".h5")).string();
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
  MAGISTER_CHECK(model.max_position_embeddings <= 0 || config_.max_prompt_length <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig, "tasks: {}: max_prompt_length is {}, but the model was made for {} positions (verdicts beyond "
                 "them would be meaningless); lower it", config_.name, config_.max_prompt_length, model.max_position_embeddings);
  SampleRules rules;
  rules.max_length = config_.max_prompt_length;
  rules.overflow = Overflow::kError;
  rules.vocab_size = model.vocab_size;
  rules.unit_tokens = kUnitPrompts * config_.max_prompt_length;
  rules.unit_samples = kUnitPrompts;
  rules.min_length = 1;
  rules.encode = [&prompts, texts](const Record& record) { return prompts.encode(record, answers_of(texts, record)); };
  return rules;
}

Attributes Judge::identity(const RunContext& context, const Opened& opened, const JudgePrompts& prompts, int tp_size) const {
  const IndexRange slice = opened.dataset.records();
  std::string verdicts;
  for (const VerdictClass& one : prompts.classes()) verdicts += (verdicts.empty() ? "" : ",") + one.name;
  Attributes attributes = {{"config_sha256", sha256_hex(context.config_yaml)},
                           {"model_sha256", model_sha256(context.world, config_.model.path, *opened.model.file)},
                           {"tokenizer_sha256", opened.tokenizer.sha256()},
                           {"dataset_sha256", opened.dataset.sha256()},
                           {"prompt_sha256", prompts.sha256()},
                           {"verdicts", verdicts},
                           {"dtype", dtype_name(opened.model.dtype)},
                           {"tp_size", static_cast<std::uint64_t>(tp_size)},
                           {"source_records", opened.dataset.num_source_records()},
                           {"slice_begin", slice.begin},
                           {"slice_end", slice.end}};
  if (const std::string path = answers_path(context); !path.empty()) {
    std::string hash = context.world.rank() == 0 ? file_sha256(path) : "";
    context.world.broadcast(hash, 0);
    attributes.emplace_back("answers_sha256", hash);
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
  const JudgeShape size{plan.num_samples, plan.num_tokens, plan.num_units, prompts.classes().size(), plan.max_key_bytes};
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

// Pages for two passes' prompts, or what an eighth of the memory holds; one prompt always fits.
std::int64_t Judge::cache_pages(const ModelConfig& model, int tp_size) const {
  const std::uint64_t page_bytes = kv_page_bytes(model, partition_for(model, 0, tp_size));
  const std::uint64_t a_prompt = config_.max_prompt_length / KvPages::kSlots + 2;
  const std::uint64_t wished = a_prompt + 2 * (config_.token_budget / KvPages::kSlots + config_.max_sequences);
  return static_cast<std::int64_t>(std::max(a_prompt + 1, std::min(wished, memory_share_bytes() / std::max<std::uint64_t>(page_bytes, 1))));
}

// Labels come from the data set again: they are no part of what is computed. Rank 0 alone.
void Judge::write_summary(RunContext& context, const Opened& opened, const JudgePrompts& prompts, const ResultsFile& file,
                          std::uint64_t num_samples) const {
  std::vector<std::string> names;
  for (const VerdictClass& one : prompts.classes()) names.push_back(one.name);
  const auto column = [&]<typename T>(const char* path, T) {
    std::vector<T> values(num_samples);
    file.read(path, 0, std::as_writable_bytes(std::span(values)));
    return values;
  };
  const auto source = column("/samples/source_index", std::uint64_t{});
  const auto verdict = column("/judge/verdict", std::int32_t{});
  const auto log_odds = column("/judge/log_odds", float{});
  const auto parse = column("/judge/parse", std::uint8_t{}), order = column("/judge/order", std::uint8_t{});
  std::optional<ResultsTexts> texts;
  if (const std::string path = answers_path(context); !path.empty()) texts.emplace(path);

  std::vector<JudgedRow> rows(num_samples);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {source[i], verdict[i], -1, parse[i] != 0, order[i] != 0, 1.0 / (1.0 + std::exp(-static_cast<double>(log_odds[i]))), 0, false};
    if (!texts || prompts.orders() != 1) continue;
    rows[i].likelihood = texts->mean_logprob(i);
    rows[i].has_likelihood = true;
  }
  if (!config_.label_field.empty()) {
    std::size_t row = 0;
    opened.dataset.for_each(opened.dataset.records(), [&](Record&& record) {
      const nlohmann::ordered_json value = record_field(record.text, config_.label_field, record.where);
      const std::string label = value.is_string() ? value.get<std::string>() : value.dump();
      const auto found = std::find(names.begin(), names.end(), label);
      MAGISTER_CHECK(found != names.end(), ExitCode::kData, "{}: the label \"{}\" is no verdict (they are {}); mend the line or "
                     "remove `label`", record.where, printable(label, 40), fmt::join(names, ", "));
      const auto number = static_cast<std::int32_t>(found - names.begin());
      for (; row < rows.size() && rows[row].record == record.source_index; ++row) {
        rows[row].label = prompts.orders() == 2 && rows[row].swapped ? 1 - number : number;
      }
    });
  }
  const nlohmann::ordered_json summary = summarize(rows, names, prompts.orders() == 2);
  const std::string path = fs::path(context.results_path).replace_extension(".summary.json").string(), creating = path + ".creating";
  std::ofstream(creating) << summary.dump(2) << "\n";
  MAGISTER_CHECK(std::rename(creating.c_str(), path.c_str()) == 0, ExitCode::kInputOutput, "{}: cannot be written (the summary is "
                 "lost, the verdicts are not); make room and run the command again", printable(path));
  context.log.event("summary", summary);
  log_info("{}: {}", name(), summary.dump());
}

ExitCode Judge::run(RunContext& context) {
  PhaseTimes times;
  const GpuGroup group = GpuGroup::resolve(context.world, context.experiment.layout);
  MAGISTER_CHECK(!group.on_gpu(), ExitCode::kConfig,
                 "layout.devices: GPUs were found, but this version computes on CPUs only (the GPU path is not built "
                 "yet); set layout.devices: cpu");
  make_folder(context.world, fs::path(context.results_path).parent_path().string());
  const ResultsLock lock(context.world, context.results_path);
  if (context.fresh) put_aside(context.world, context.results_path);
  const Opened opened = open(context.world);
  const ModelConfig& model = opened.model.description.config;
  partition_for(model, group.first_tp_rank(), group.tp_size());  // refuses what cannot be divided
  const JudgePrompts prompts(config_, opened.tokenizer);
  const std::vector<std::vector<TokenId>> classes = first_tokens(opened.tokenizer, prompts.classes());
  rules(model, prompts, nullptr);
  const Attributes expected = identity(context, opened, prompts, group.tp_size());
  const ResultsFile::State state = state_everywhere(context.world, context.results_path);
  if (state == ResultsFile::State::kComplete) {
    check_complete(context.world, context.results_path, expected);
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", name(), context.results_path);
    return ExitCode::kDone;
  }
  ResultsFile file = state == ResultsFile::State::kPartial ? ResultsFile::resume(context.world, context.results_path, expected)
                                                           : create(context, opened, prompts, expected, times);
  const std::uint64_t num_samples = ResultsFile::read_number(context.world, context.results_path + ".partial", "num_samples");
  const auto num_pages = static_cast<std::int64_t>(context.world.min(static_cast<std::uint64_t>(cache_pages(model, group.tp_size()))));
  const std::optional<LossPlan> loss = plan_quantization_loss(
      context, group, {name(), config_.model.quantization_loss, opened.model, file, expected,
                       [&](std::span<const float> logits_V) { return score_verdict(logits_V, classes, config_.low_mass); }});
  UnitLoop loop{context, group, file, name(), context.results_path, times, opened.model.facts(), false};
  const ExitCode code = run_unit_loop(std::move(loop), [&](const UnitWork& work) {
    run_judge_units({group, file, work, opened.model.description, *opened.model.file, opened.model.dtype, opened.model.quantization, config_, prompts.orders(),
                     classes, num_pages, [&] { return context.stop.raised(); }, loss, times});
  });
  if (code != ExitCode::kDone) return code;
  // The summary first: a complete file whose summary failed would never get one.
  if (context.world.rank() == 0) write_summary(context, opened, prompts, file, num_samples);
  context.world.wait_for_all();
  file.complete(context.world);
  log_info("{}: {} is complete", name(), context.results_path);
  return ExitCode::kDone;
}

PlanReport Judge::plan(RunContext& context, int num_ranks) {
  const Opened opened = open(context.world);
  const ModelConfig& model = opened.model.description.config;
  const JudgePrompts prompts(config_, opened.tokenizer);
  first_tokens(opened.tokenizer, prompts.classes());
  PlanReport report;
  report.devices = plan_layout(num_ranks, context.experiment.layout);
  for (const DeviceRow& row : report.devices) {
    report.num_groups = std::max(report.num_groups, row.group_index + 1);
    report.tp_size = std::max(report.tp_size, row.tp_rank + 1);
  }
  for (int shard = 0; shard < report.tp_size; ++shard) {
    const Partition partition = partition_for(model, shard, report.tp_size);
    const std::uint64_t weights = weight_bytes(opened.model.description, *opened.model.file, opened.model.dtype, shard, report.tp_size,
                                               opened.model.quantization);
    const std::uint64_t work = activation_bytes(model, partition, static_cast<std::int64_t>(config_.token_budget), 1);
    const std::uint64_t cache = static_cast<std::uint64_t>(cache_pages(model, report.tp_size)) * kv_page_bytes(model, partition);
    if (weights + work + cache <= report.device_bytes) continue;
    report.device_bytes = weights + work + cache;
    report.device_parts = {{"weights", weights}, {"activations", work}, {"keys and values", cache}};
  }
  report.model = fmt::format("{}, {:.1f} M parameters, {}", model.family, static_cast<double>(model.num_parameters()) * 1e-6,
                             opened.model.storage());
  report.free_bytes = free_bytes_for(context.results_path);
  const std::string answers = answers_path(context);
  if (!answers.empty() && !fs::exists(answers)) {
    report.num_samples = opened.dataset.records().size() * prompts.orders();
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
  report.results_bytes = JudgeShape{samples.num_samples, samples.num_tokens, samples.num_units, prompts.classes().size(), samples.max_key_bytes}.file_bytes();
  report.notes = {{"longest prompt", fmt::format("{} tokens", samples.longest_sample)}};
  return report;
}

}  // namespace

std::unique_ptr<Task> make_judge(JudgeConfig config) { return std::make_unique<Judge>(std::move(config)); }

}  // namespace magister
