// Task train: data set, or a teacher's file -> tokens -> steps over micro-batches -> a model folder and its curves. The tokens stand in the
// working file <name>.running.h5, states of the training in <name>.checkpoints/; a teacher's rows are read where they are.
#include "magister/run/task.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"
#include "tasks/train/columns.h"
#include "tasks/train/config.h"
#include "tasks/train/job.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

TaskTraits traits_of(const TrainConfig& config) {
  const std::optional<ModelSection>& rewards = config.grpo.reward.model;
  return {.head = config.of_head() ? TaskTraits::Head::kAny : TaskTraits::Head::kVocabulary,
          .head_labels = config.head_labels(),
          .runs_model = false,
          .divides_records = false,
          .keeps_widths = true,
          .needs = {config.teacher.task, config.value.task, rewards ? rewards->task : std::string(),
                    config.evaluate ? config.evaluate->teacher.task : std::string()}};
}

class Train final : public Task {
 public:
  explicit Train(TrainConfig config)
      : Task("train", config.name, config.model, config.dataset, traits_of(config)), config_(std::move(config)) {}

  Notes fit_lengths(const Positions& own, const PositionsOf& of) override {
    Notes notes;
    const RewardConfig& reward = config_.grpo.reward;
    const bool writes = config_.of_prompts();
    const std::uint64_t rewarded = writes && !config_.length.is_written() ? positions_of_reward(reward, of) : 0;
    config_.fit_lengths(writes ? fewer(own.cached, rewarded) : own.whole, notes);
    if (writes) fit_judge(config_.grpo.reward, of, notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits&) const override { return {config_.batches.max_length, 0, 0}; }
  ModelWork model_work(double samples, double tokens) const override;
  TaskData data(const RunContext& context) const override;
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<TrainJob>(config_, inputs);
  }

 private:
  TrainConfig config_;
};

// A sequence is as long as the average; a pair is two, and a prompt of GRPO several texts of full length.
ModelWork Train::model_work(double samples, double tokens) const {
  const BatchOptions& batches = config_.batches;
  const double length = samples > 0 ? tokens / samples : 0;
  if (config_.of_prompts()) {
    const double prompts = config_.steps > 0 ? static_cast<double>(config_.steps * batches.global_batch)
                                             : batches.epochs * samples,
                 texts = prompts * static_cast<double>(config_.grpo.num_generations),
                 written = texts * static_cast<double>(config_.grpo.max_new_tokens);
    return {0, written, texts * length + written, static_cast<double>(batches.global_batch)};
  }
  if (batches.steps == 0) return {0, 0, batches.epochs * tokens};
  const double sequences = static_cast<double>(batches.global_batch) * (config_.of_pairs() ? 2 : 1);
  return {0, 0,
          static_cast<double>(batches.steps) *
              (batches.batch_tokens > 0 ? static_cast<double>(batches.batch_tokens) : sequences * length)};
}

// Of a distillation the teacher's file, of a value model the rollouts: their samples are records.
TaskData Train::data(const RunContext& context) const {
  if (!config_.reads_results()) return Task::data(context);
  const std::string path = results_of(config_, context),
                    task = config_.values ? config_.value.task : config_.teacher.task;
  const Task* const maker =
      task.empty() ? nullptr
                   : require_results(context, config_.values ? config_.value.rollouts_place : config_.teacher.place,
                                     task, config_.values ? "rollout" : "teacher_logits");
  if (maker != nullptr && !is_made(context, path)) return {maker->data(context).config, true};
  MAGISTER_CHECK(fs::exists(path) || !fs::exists(path + ".partial"), ExitCode::kData,
                 "{}: is not complete ({}.partial stands there, and rows would be missing); finish the run that writes "
                 "it first",
                 printable(path, 4096), printable(fs::path(path).filename().string()));
  DatasetConfig dataset;
  dataset.paths = {path};
  dataset.tokens_field = "tokens";
  dataset.key_field = "key";
  return {dataset};
}

}  // namespace

TaskKind train_task() {
  return {.name = "train",
          .read = read_as<Train, read_train_config>,
          .schema = &kTrainSchema,
          .trains = true,
          .draws = true,
          .counts_steps = true};
}

}  // namespace magister
