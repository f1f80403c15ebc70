// See job.h.
#include "tasks/train/job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/run/unit_samples.h"
#include "magister/runtime/device_group.h"
#include "magister/runtime/model_hash.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/tokenizer_files.h"
#include "magister/train/checkpoint.h"
#include "tasks/train/columns.h"
#include "tasks/train/held_out.h"
#include "tasks/train/objective.h"
#include "tasks/train/run.h"
#include "tasks/train/samples.h"

namespace magister {
namespace fs = std::filesystem;

void TrainJob::work(const ModelRun& run) {
  const PlanNumbers& plan = run.plan;
  const TrainingShape shape = agreed_shape(plan);
  check_device_memory(run.group, 0, model_, device_bytes(shape, plan));
  if (model_.gpu && run.group.groups_here() > 1 && context_.world.rank() == 0)
    log_warning("{}: a training computes on one GPU a rank, and a rank has {} here; start a rank a GPU", config_.name,
                run.group.groups_here());
  TrainingWork work{context_, config_, layout_, checkpoint_.file(), *open_, states(), state_identity()};
  work.shape = shape;
  if (work.shape.num_threads < whole_shape(plan).num_threads) work.passes_at_once = work.shape.num_threads;
  if (context_.world.rank() == 0) {
    for (const auto& [name, value] : memory_notes(shape, plan)) log_info("{}: {}: {}", config_.name, name, value);
  }
  if (config_.of_head()) work.new_head = {config_.batches.seed, checkpoint_.config().initializer_range};
  if (held_out_records_) work.held_out = &*held_out_records_;
  run_training(run, work, plan);
}

// A lower bound if samples are packed or batch sizes are in tokens; else exact.
std::uint64_t TrainJob::steps(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  if (batches.steps > 0) return config_.updates(batches.steps);
  const std::uint64_t sequences =
      batches.packing ? plan.num_tokens / batches.max_length + 1 : plan.num_samples / config_.samples_an_item();
  const std::uint64_t an_epoch = batches.batch_tokens > 0
                                     ? plan.num_tokens / batches.batch_tokens + 1
                                     : (sequences + batches.global_batch - 1) / batches.global_batch;
  return config_.updates(static_cast<std::uint64_t>(std::ceil(static_cast<double>(an_epoch) * batches.epochs)));
}

TaskResults TrainJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns =
      sample_columns(plan.num_samples, plan.num_tokens, plan.key_bytes,
                     "tokens of sample i are offset[i] .. offset[i+1] of /tokens", "the tokens that are learnt from");
  if (const char* const mark = config_.objective().marks(config_)) {
    results.columns.push_back(
        {"/tokens/assistant", ColumnType::kU8, plan.num_tokens, 0, mark, "", ColumnSpec::Extent::kRows});
  }
  for (ColumnSpec& column : open_->working_columns(plan.num_samples)) results.columns.push_back(std::move(column));
  // The states take most of the packed size: each has the weights and two moments.
  const std::uint64_t weights = 4 * static_cast<std::uint64_t>(trained().num_parameters());
  const std::uint64_t evaluations =
      config_.evaluate ? num_evaluations(steps(plan), config_.evaluate->every, steps(plan)) : 0;
  results.packed_bytes = train_results_bytes(steps(plan), evaluations) + weights + 3 * weights * (config_.keep + 1);
  if (config_.keep > 1) results.made_smaller_by = "train.keep";
  results.notes = notes(plan);
  return results;
}

Notes TrainJob::notes(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  const bool is_bound = batches.packing || batches.batch_tokens > 0;
  const char* const items = config_.of_pairs() ? "pairs" : config_.objective().items;
  return {{"steps", fmt::format("{}{} of {}", is_bound && batches.steps == 0 ? "at least " : "", steps(plan),
                                batches.batch_tokens > 0 ? fmt::format("at most {} tokens", batches.batch_tokens)
                                                         : fmt::format("{} {}", batches.global_batch, items))},
          {"parameters",
           lora_ ? fmt::format("{} of an adapter, in addition to {}", lora_->num_parameters(), layout_.num_parameters())
                 : std::to_string(layout_.num_parameters())}};
}

// The student gets the chat template that it was trained with, so that programs which use it write chats in the same
// way.
ModelOrigin TrainJob::origin() const {
  const std::string& hub_name = checkpoint_.section().hub_name;
  ModelOrigin origin{checkpoint_.path(), hub_name.empty() ? checkpoint_.path() : hub_name, checkpoint_.tokenizer_path(),
                     "", "{}\n"};
  const LearntEnds ends = open_->ends();
  origin.end_tokens = student_ends(checkpoint_, config_, ends);
  const bool own_template = ends.chats && !checkpoint_.section().chat_template.empty();
  const bool from_gguf = !fs::is_directory(origin.tokenizer);
  const ChatSource* const source = own_template || from_gguf ? checkpoint_.chat_source() : nullptr;
  if (source == nullptr) return origin;
  origin.chat_template = source->text;
  origin.tool_template = source->tool_text;
  nlohmann::json tokens = nlohmann::json::object();
  for (const auto& [name, text] : source->tokens) tokens[name] = text;
  origin.tokenizer_config = tokens.dump(2) + "\n";
  return origin;
}

// The sha256 that tasks which open the folder will compute. Ends early if the run is stopped. Local.
std::string TrainJob::folder_sha256() const {
  const Communicator alone;
  if (lora_) return files_sha256(alone, lora_paths(folder()), context_.stop_poll());
  return model_sha256(alone, folder(), *TensorFile::open(folder()), {}, context_.stop_poll()).whole;
}

// The rows point to numbers in curves.
std::vector<StepRow> TrainJob::step_rows(const TrainingCurves& curves, const TrainingSamples& samples,
                                         BatchPlan& batches) const {
  const CurveSet& set = config_.objective().curves(config_);
  std::vector<StepRow> rows;
  for (std::uint64_t step = 0; step < curves.step; ++step) {
    StepRow& row = rows.emplace_back();
    row.loss = curves.loss[step];
    row.grad_norm = curves.grad_norm[step];
    row.numbers = curves.rewards.data() + step * static_cast<std::uint64_t>(set.width);
    row.lr = static_cast<float>(config_.trainer.optimizer.lr *
                                lr_factor(config_.schedule, step, config_.warmup_steps(curves.step), curves.step));
    if (set.tokens != nullptr) {
      row.tokens = set.tokens(row.numbers);
      continue;
    }
    for (const Samples& items : batches.micro_batches(step)) row.tokens += samples.num_labels(items);
  }
  return rows;
}

std::vector<EvaluationRow> TrainJob::evaluation_rows(const TrainingCurves& curves) const {
  const auto width = static_cast<std::uint64_t>(config_.objective().held_out_curves->width);
  std::vector<EvaluationRow> rows;
  for (std::uint64_t i = 0; i < curves.evaluations.size() / width; ++i)
    rows.push_back(
        {step_of_evaluation(i, config_.evaluate->every, curves.step), curves.evaluations.data() + i * width});
  return rows;
}

bool TrainJob::pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                    const Attributes& root) {
  const TrainingSamples samples(running, plan.num_samples, config_);
  BatchPlan batches(samples.lengths(), config_.batches);
  const std::optional<std::string> state = newest_training_state(states());
  at::Tensor weights;
  const Objective& objective = config_.objective();
  const TrainingCurves curves =
      state ? load_trained_weights(*state, trained(), weights, state_identity(), objective.curves(config_).width)
            : TrainingCurves();
  const std::uint64_t num_steps = config_.updates(batches.num_steps());
  MAGISTER_CHECK(curves.step == num_steps, ExitCode::kData,
                 "{}: the newest state is of step {} of {} (the last was removed); run the same command again",
                 printable(states(), 4096), curves.step, num_steps);
  const std::vector<StepRow> rows = step_rows(curves, samples, batches);
  if (curves.skipped() > 0) log_warning("{}: {} steps were skipped", config_.name, curves.skipped());
  checkpoint_.check_unchanged();  // the folder below is written from its config and tokenizer
  if (lora_) {
    const auto base =
        std::find_if(root.begin(), root.end(), [](const auto& one) { return one.first == "model_sha256"; });
    write_adapter_folder(folder(), origin(), *lora_, weights, std::get<std::string>(base->second));
  } else {
    write_model_folder(folder(), origin(), layout_, weights, reward_pad_token(checkpoint_, config_));
  }
  Attributes attributes = root;
  attributes.emplace_back(kModelFolderKey, folder_sha256());
  attributes.emplace_back(kModelFolderFilesKey, files_sha256(Communicator(), files_next_to_weights(folder(), folder()),
                                                             context_.stop_poll()));
  if (context_.stop.raised()) return false;
  write_train_results(path, attributes, rows, objective.curves(config_), evaluation_rows(curves),
                      *objective.held_out_curves);
  return true;
}

}  // namespace magister
