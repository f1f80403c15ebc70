// Task exam: objectives and a source -> items that are written, checked and rewritten, each objective a unit -> one
// packed file of all versions, and the exam in the formats of learning platforms. State machine, prompts, packing and
// exports have their own files in this folder.
#include "magister/run/task.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/whole_file.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/end_tokens.h"
#include "tasks/exam/columns.h"
#include "tasks/exam/config.h"
#include "tasks/exam/duplicate_pairs.h"
#include "tasks/exam/objective_writer.h"
#include "tasks/exam/objectives.h"
#include "tasks/exam/pack.h"
#include "tasks/exam/report.h"
#include "tasks/exam/work.h"
#include "tasks/exam/worker.h"
#include "tasks/exam/written_exam.h"

namespace magister {
namespace {

constexpr std::uint64_t kMostObjectiveBytes = 64 << 20, kMostPairsBytes = std::uint64_t{1} << 30;

// The objectives as records of {key, text}; those that the model will write have no text. Local; the same on every
// rank.
DatasetConfig objective_records(const ExamConfig& config) {
  DatasetConfig records;
  records.whole_record = true;
  records.key_field = "key";
  for (std::size_t i = 0; i < config.auto_objectives; ++i)
    records.lines.push_back(nlohmann::ordered_json{{"key", auto_number(i)}, {"text", ""}}.dump());
  if (config.auto_objectives > 0) return records;
  MAGISTER_CHECK(std::filesystem::is_regular_file(config.objectives), ExitCode::kData,
                 "{}: {}: {} (an exam asks about objectives); name a file of lines as 1.1.1.1 text",
                 config.objectives_place, printable(config.objectives),
                 std::filesystem::is_directory(config.objectives) ? "is a folder" : "no such file");
  const std::string bytes =
      read_whole_file(config.objectives, kMostObjectiveBytes, "no list of objectives has so many");
  const ObjectiveList list = read_objectives(bytes, config.objectives);
  if (!list.faults.empty()) {
    std::string all;
    for (const std::string& fault : list.faults) all += (all.empty() ? "" : "\n") + fault;
    fail(ExitCode::kData, "{}", all);
  }
  for (const ExamObjective& one : list.objectives)
    records.lines.push_back(nlohmann::ordered_json{{"key", one.number}, {"text", one.text}}.dump());
  return records;
}

// Throws Error(kData) with the place in the experiment if a pattern of the source names no file.
const ExamConfig& with_source_files(const ExamConfig& config) {
  try {
    source_files(config.source);
  } catch (const Error& error) {
    throw Error(error.code(), config.source_place + ": " + error.what());
  }
  return config;
}

class ExamJob final : public TaskJob {
 public:
  ExamJob(const ExamConfig& config, const TaskInputs& inputs);

  Attributes identity() override;
  Awaited awaited() const override { return {.placeholder = setup_.validator && setup_.validator->is_placeholder()}; }
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override {
    std::vector<std::string> names;
    if (setup_.validator) setup_.validator->keep_weights(store, identity, names);
    return names;
  }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  MemoryDemand demand(const PlanNumbers&) const override;
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    const ExamShape size = shape(shard.run.plan);
    return make_exam_worker(std::move(shard), setup_, size);
  }
  bool report(const ResultsFile& file, const PlanNumbers& plan) override;
  Packing packing() override {
    return
        [this](const ResultsFile& running, const PlanNumbers& plan, const std::string& path, const Attributes& root) {
          const std::optional<WrittenExam> exam = read_exam(running, plan);
          if (!exam || !pack_exam(*exam, setup_, shape(plan), path, root, inputs_.context.stop_poll())) return false;
          std::filesystem::remove(setup_.pairs_path);
          return true;
        };
  }
  SideFiles side_files() const override;

 private:
  void check_objectives() const;
  SampleTokens objective_prompt(const Record& record) const;
  std::optional<WrittenExam> read_exam(const ResultsFile& running, const PlanNumbers& plan);
  ExamShape shape(const PlanNumbers& plan) const {
    return setup_.shape(plan.num_samples, plan.num_tokens, plan.key_bytes);
  }

  ExamSetup setup_;
  const ExamConfig& config_;  // the one of setup_
  const PassShape pass_;
  const TaskInputs inputs_;
  OpenModel writer_;  // its cache leaves room for the validator
};

ExamJob::ExamJob(const ExamConfig& config, const TaskInputs& inputs)
    : setup_(without_auto(with_source_files(config), inputs.model.pass_limits()), inputs.checkpoint),
      config_(setup_.config),
      pass_(text_pass(config_, config_.limits({}))),
      inputs_(inputs),
      writer_(inputs.model) {
  check_positions(inputs.checkpoint.config(), config_.length_place, config_.max_prompt_length.tokens(),
                  config_.max_new_tokens.tokens());
  MAGISTER_CHECK(
      config_.reserve() < config_.max_prompt_length.tokens(), ExitCode::kConfig,
      "{} is {} (a rewritten item needs {} tokens more than its first prompt: max_new_tokens and 256); raise "
      "it, or lower max_new_tokens",
      config_.length_place, config_.max_prompt_length.tokens(), config_.reserve());
  inputs.dataset.for_each(inputs.dataset.records(), [this](Record&& record) {
    setup_.objectives.push_back({record.key, record.fields->at("text").get<std::string>(), 0});
  });
  check_objectives();
  setup_.pairs_path = beside_results(inputs.context.results_path, ".pairs.json");
  if (!config_.validator) return;
  setup_.validator = std::make_unique<ExamValidator>(config_, inputs, pass_);
  setup_.check_prompts = std::make_unique<ExamPrompts>(config_, setup_.validator->checkpoint());
  writer_.reserved_bytes = setup_.validator->gpu_bytes();
}

// Objectives that the model writes: each needs a passage of its own, and every group must write the same ones.
void ExamJob::check_objectives() const {
  if (config_.auto_objectives == 0) return;
  MAGISTER_CHECK(config_.auto_objectives <= setup_.chunks.size(), ExitCode::kData,
                 "{} is {} (each objective is written from a passage of its own, and the source has {} of at most {} "
                 "tokens); lower it or source.passage_tokens, or add text",
                 config_.objectives_place, config_.auto_objectives, setup_.chunks.size(), config_.passage_tokens);
  MAGISTER_CHECK(!inputs_.context.experiment.layout.shares.mixed(), ExitCode::kConfig,
                 "{} with groups of {} (groups of several sizes would write objectives of their own); use one size in "
                 "layout.gpus_per_group, or give a list of objectives",
                 config_.objectives_place, inputs_.context.experiment.layout.shares.sizes());
}

Attributes ExamJob::identity() {
  Attributes attributes = {{"source_sha256", setup_.source_sha256()},
                           {"exam_prompts_sha256", sha256_hex(setup_.prompts.templates())}};
  if (const std::string ids = setup_.prompts.identity(); !ids.empty())
    attributes.emplace_back("verdict_token_ids", ids);
  if (!setup_.validator) return attributes;
  if (const std::string ids = setup_.checks().identity(); !ids.empty())
    attributes.emplace_back("validator_verdict_token_ids", ids);
  const RunContext& context = inputs_.context;
  for (auto& attribute : setup_.validator->identity(context.world, context.stop_poll()))
    attributes.push_back(std::move(attribute));
  leave_if_stopped(context.world, context.stop);
  return attributes;
}

SampleRules ExamJob::rules() {
  SampleRules rules = prompt_rules(config_, inputs_.checkpoint.config().vocab_size, &setup_.tokenizer);
  rules.max_length = config_.max_prompt_length.tokens() - config_.reserve();
  rules.length_key = "max_prompt_length (without the room for a rewritten item: max_new_tokens + 256)";
  rules.encode = [this](const Record& record) -> std::vector<SampleTokens> {
    if (config_.auto_objectives > 0) return {objective_prompt(record)};
    const ExamObjective objective{record.key, record.fields->at("text").get<std::string>(), 0};
    const ExamTopic topic = setup_.topic(record.source_index, objective);
    const AskedItem asked = asked_item(config_, topic.passages.size(), record.source_index, 0);
    return {setup_.prompts.encode(ExamPrompt::kWrite, writing_fields(topic, asked), "objective " + record.key)};
  };
  return rules;
}

// The prompt that writes the objective. The prompts that write its items are not known yet; the longest of them, with
// the longest passages of the source, must fit, too.
SampleTokens ExamJob::objective_prompt(const Record& record) const {
  const std::string where = "objective " + record.key;
  const std::size_t passage =
      passage_of_objective(record.source_index, config_.auto_objectives, setup_.chunks.size(), 0);
  ExamTopic topic{record.source_index, record.key, std::string(160, 'x'), {setup_.chunks[passage].text}, {passage}};
  while (topic.passages.size() < setup_.num_passages()) topic.passages.push_back(setup_.longest_chunk);
  const AskedItem asked = asked_item(config_, topic.passages.size(), record.source_index, 0);
  SampleTokens item{setup_.prompts.encode(ExamPrompt::kWrite, writing_fields(topic, asked), where)};
  if (item.ids.size() > config_.max_prompt_length.tokens() - config_.reserve()) return item;  // refused by its length
  return {setup_.prompts.encode(ExamPrompt::kObjective, objective_fields(topic.passages[0], {}), where)};
}

TaskResults ExamJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = exam_running_columns(shape(plan));
  results.packed_bytes = packed_exam_bytes(shape(plan));
  results.made_smaller_by = "items.per_objective, bounds or max_new_tokens";
  const std::uint64_t items = plan.num_samples * config_.items;
  ExamConfig counted = config_;
  if (writer_.description.config.delta) counted.share_prefixes = false;  // see Generator
  results.notes = {{"objectives", std::to_string(plan.num_samples)},
                   {"work", expected_work(counted, static_cast<double>(plan.num_samples),
                                          static_cast<double>(plan.num_tokens), config_.limits({}))
                                .in_words()},
                   {"items", fmt::format("{}, each in at most {} versions", items, config_.bounds.versions())},
                   {"source", fmt::format("{} passages of at most {} tokens, {} for an objective", setup_.chunks.size(),
                                          config_.passage_tokens, setup_.num_passages())}};
  if (setup_.validator) results.notes.emplace_back("validator", setup_.validator->describe());
  return results;
}

MemoryDemand ExamJob::demand(const PlanNumbers& plan) const {
  MemoryDemand demand;
  demand.cache_pages = static_cast<std::uint64_t>(
      pages_of_texts(writer_, inputs_.tp_size, pass_, config_.longest_text(), config_.max_sequences));
  constexpr std::uint64_t kBytesAVersion = 6000, kNoteworthy = 256 << 20;
  const std::uint64_t versions = kBytesAVersion * plan.num_samples * config_.items * kPlannedVersions;
  if (versions > kNoteworthy) demand.host = {{"all versions of all items, while the files are written", versions}};
  if (!setup_.validator) return demand;
  demand.device = inputs_.model.device_memory(inputs_.tp_size, pass_, demand.cache_pages);
  for (auto& part : setup_.validator->memory()) demand.device.push_back(std::move(part));
  return demand;
}

// Writes the files beside the results before these are complete: a complete exam whose exports failed would never get
// them.
bool ExamJob::report(const ResultsFile& file, const PlanNumbers& plan) {
  const std::optional<WrittenExam> exam = read_exam(file, plan);
  if (exam) write_exam_files(*exam, setup_, inputs_.context.results_path);
  return exam.has_value();
}

// Nothing if the job was asked to stop, also before all pairs of items were compared.
std::optional<WrittenExam> ExamJob::read_exam(const ResultsFile& running, const PlanNumbers& plan) {
  const StopPoll poll = inputs_.context.stop_poll();
  WrittenExam exam = read_written_exam(running, setup_, shape(plan), poll);
  if (poll() || !std::filesystem::exists(setup_.pairs_path)) return std::nullopt;
  const auto pairs =
      read_pairs(read_whole_file(setup_.pairs_path, kMostPairsBytes, "an exam has fewer pairs"), exam.versions);
  if (!pairs) return std::nullopt;
  reject_duplicates(exam.versions, *pairs, config_.limits_of_checks.log_odds);
  return exam;
}

SideFiles ExamJob::side_files() const {
  SideFiles files;
  for (const char* const suffix : {".summary.json", ".summary.txt"})
    files.needed.push_back({beside_results(inputs_.context.results_path, suffix), "the summary of the exam"});
  files.put_aside = {setup_.pairs_path};
  if (config_.auto_objectives > 0)
    files.needed.push_back({beside_results(inputs_.context.results_path, ".objectives.txt"), "the objectives"});
  return files;
}

class ExamTask final : public Task {
 public:
  explicit ExamTask(ExamConfig config)
      : Task("exam", config.name, config.model, {},
             {.keeps_widths = true, .needs = {config.validator ? config.validator->task : std::string()}}),
        config_(std::move(config)) {}

  TaskData data(const RunContext&) const override { return {objective_records(config_)}; }
  std::vector<SecondModel> second_models(const PassLimits& device) const override {
    return validator_models(config_, device);
  }
  std::uint64_t cached_tokens() const override { return config_.longest_text(); }
  Notes fit_lengths(const Positions& own, const PositionsOf& of) override {
    Notes notes;
    if (both_written(config_.max_prompt_length, config_.max_new_tokens)) return notes;
    const std::uint64_t validator = config_.validator ? of(*config_.validator).cached : 0;
    magister::fit_lengths(config_.max_prompt_length, config_.max_new_tokens, fewer(own.cached, validator), notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits& device) const override { return text_pass(config_, config_.limits(device)); }
  ModelWork model_work(double samples, double tokens) const override {
    // As many texts at once as on a GPU: fewer, as on a CPU, take no less time.
    return expected_work(config_, samples, tokens, config_.limits(kGpuPassLimits)).model_work();
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<ExamJob>(config_, inputs);
  }

 private:
  ExamConfig config_;
};

}  // namespace

TaskKind exam_task() {
  return {.name = "exam",
          .read = read_as<ExamTask, read_exam_config>,
          .schema = &kExamSchema,
          .draws = true,
          .exports = exam_export_formats()};
}

}  // namespace magister
