// Task train: data set or results of another task -> tokens -> steps over micro-batches -> a model folder and its
// curves. The working file <name>.running.h5 has the tokens, and <name>.checkpoints/ the states of the training; a
// teacher's rows are read from its own file.
#include "magister/run/task.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"
#include "tasks/train/columns.h"
#include "tasks/train/config.h"
#include "tasks/train/job.h"
#include "tasks/train/objective.h"

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
          .needs = {config.source.task, rewards ? rewards->task : std::string(),
                    config.evaluate ? config.evaluate->teacher.task : std::string()}};
}

class Train final : public Task {
 public:
  explicit Train(TrainConfig config)
      : Task("train", config.name, config.model, config.dataset, traits_of(config)), config_(std::move(config)) {}

  Notes fit_lengths(const Positions& own, const PositionsOf& of) override {
    Notes notes;
    config_.objective().fit_lengths(config_, own, of, notes);
    return notes;
  }
  std::uint64_t cached_tokens() const override {
    return config_.objective().kind == ObjectiveKind::kGrpo ? config_.batches.max_length : 0;
  }
  PassShape pass_shape(const PassLimits&) const override { return {config_.batches.max_length, 0, 0}; }
  ModelWork model_work(double samples, double tokens) const override {
    return config_.objective().model_work(config_, samples, tokens);
  }
  TaskData data(const RunContext& context) const override;
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<TrainJob>(config_, inputs);
  }

 private:
  TrainConfig config_;
};

// The data set. For a distillation it is the teacher's file and for a value model the rollouts, whose samples are the
// records.
TaskData Train::data(const RunContext& context) const {
  const char* const kind = config_.objective().learns_from;
  if (kind == nullptr) return Task::data(context);
  const ResultsSource& source = config_.source;
  const std::string path = source.path(kind, context);
  const Task* const maker = source.task.empty() ? nullptr : require_results(context, source.place, source.task, kind);
  if (maker != nullptr && !is_made(context, path)) return {maker->data(context).config, true};
  MAGISTER_CHECK(
      fs::exists(path) || !fs::exists(path + ".partial"), ExitCode::kData,
      "{}: is not complete ({}.partial is there, and rows would be missing); finish the run that writes it first",
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
          .steps_column = train_column::kStep.path};
}

}  // namespace magister
