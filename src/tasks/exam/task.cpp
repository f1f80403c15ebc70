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
#include "tasks/exam/objectives.h"
#include "tasks/exam/pack.h"
#include "tasks/exam/report.h"
#include "tasks/exam/worker.h"
#include "tasks/exam/written_exam.h"

namespace magister {
namespace {

constexpr std::uint64_t kMostObjectiveBytes = 64 << 20;

// The objectives as records of {key, text}. Local; the same on every rank.
DatasetConfig objective_records(const ExamConfig& config) {
  const std::string bytes = read_whole_file(config.objectives, kMostObjectiveBytes, "no list of objectives has");
  const ObjectiveList list = read_objectives(bytes, config.objectives);
  if (!list.faults.empty()) {
    std::string all;
    for (const std::string& fault : list.faults) all += (all.empty() ? "" : "\n") + fault;
    fail(ExitCode::kData, "{}", all);
  }
  DatasetConfig records;
  records.whole_record = true;
  records.key_field = "key";
  for (const ExamObjective& one : list.objectives)
    records.lines.push_back(nlohmann::ordered_json{{"key", one.number}, {"text", one.text}}.dump());
  return records;
}

class ExamJob final : public TaskJob {
 public:
  ExamJob(const ExamConfig& config, const TaskInputs& inputs);

  Attributes identity() override;
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
          const StopPoll poll = inputs_.context.stop_poll();
          const WrittenExam exam = read_written_exam(running, setup_, shape(plan), poll);
          return !poll() && pack_exam(exam, setup_, shape(plan), path, root, poll);
        };
  }
  SideFiles side_files() const override;

 private:
  ExamShape shape(const PlanNumbers& plan) const {
    return setup_.shape(plan.num_samples, plan.num_tokens, plan.key_bytes);
  }

  ExamSetup setup_;
  const ExamConfig& config_;  // the one of setup_
  const PassShape pass_;
  const TaskInputs inputs_;
};

ExamJob::ExamJob(const ExamConfig& config, const TaskInputs& inputs)
    : setup_(without_auto(config, inputs.model.pass_limits()), inputs.checkpoint),
      config_(setup_.config),
      pass_(text_pass(config_, config_.limits({}))),
      inputs_(inputs) {
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
}

Attributes ExamJob::identity() {
  Attributes attributes = {{"source_sha256", setup_.source_sha256()},
                           {"exam_prompts_sha256", sha256_hex(setup_.prompts.templates())}};
  if (const std::string ids = setup_.prompts.identity(); !ids.empty())
    attributes.emplace_back("verdict_token_ids", ids);
  return attributes;
}

SampleRules ExamJob::rules() {
  SampleRules rules = prompt_rules(config_, inputs_.checkpoint.config().vocab_size, &setup_.tokenizer);
  rules.max_length = config_.max_prompt_length.tokens() - config_.reserve();
  rules.length_key = "max_prompt_length (without the room for a rewritten item: max_new_tokens + 256)";
  rules.encode = [this](const Record& record) -> std::vector<SampleTokens> {
    const ExamObjective objective{record.key, record.fields->at("text").get<std::string>(), 0};
    const ExamTopic topic = setup_.topic(record.source_index, objective);
    const AskedItem asked = asked_item(config_, topic.passages.size(), record.source_index, 0);
    return {setup_.prompts.encode(ExamPrompt::kWrite, writing_fields(topic, asked), "objective " + record.key)};
  };
  return rules;
}

TaskResults ExamJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = exam_running_columns(shape(plan));
  results.packed_bytes = packed_exam_bytes(shape(plan));
  results.made_smaller_by = "items.per_objective, bounds or max_new_tokens";
  const std::uint64_t items = plan.num_samples * config_.items;
  results.notes = {{"objectives", std::to_string(plan.num_samples)},
                   {"items", fmt::format("{}, each in at most {} versions", items, config_.bounds.versions())},
                   {"source", fmt::format("{} passages of at most {} tokens, {} for an objective", setup_.chunks.size(),
                                          config_.passage_tokens, setup_.num_passages())}};
  return results;
}

MemoryDemand ExamJob::demand(const PlanNumbers&) const {
  MemoryDemand demand;
  demand.cache_pages = static_cast<std::uint64_t>(
      pages_of_texts(inputs_.model, inputs_.tp_size, pass_, config_.longest_text(), config_.max_sequences));
  return demand;
}

// Writes the files beside the results before these are complete: a complete exam whose exports failed would never get
// them.
bool ExamJob::report(const ResultsFile& file, const PlanNumbers& plan) {
  const StopPoll poll = inputs_.context.stop_poll();
  const WrittenExam exam = read_written_exam(file, setup_, shape(plan), poll);
  if (poll()) return false;
  write_exam_files(exam, setup_, inputs_.context.results_path);
  return true;
}

SideFiles ExamJob::side_files() const {
  SideFiles files;
  for (const char* const suffix : {".summary.json", ".summary.txt"})
    files.needed.push_back({beside_results(inputs_.context.results_path, suffix), "the summary of the exam"});
  return files;
}

class ExamTask final : public Task {
 public:
  explicit ExamTask(ExamConfig config)
      : Task("exam", config.name, config.model, {}, {.keeps_widths = true}), config_(std::move(config)) {}

  TaskData data(const RunContext&) const override { return {objective_records(config_)}; }
  Notes fit_lengths(const Positions& own, const PositionsOf&) override {
    Notes notes;
    if (!both_written(config_.max_prompt_length, config_.max_new_tokens))
      magister::fit_lengths(config_.max_prompt_length, config_.max_new_tokens, own.cached, notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits& device) const override { return text_pass(config_, config_.limits(device)); }
  ModelWork model_work(double samples, double tokens) const override {
    const double items = samples * static_cast<double>(config_.items);
    return {tokens * static_cast<double>(config_.items), items * static_cast<double>(config_.max_new_tokens.tokens()),
            0, std::min(items, static_cast<double>(config_.limits({}).sequences))};
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
